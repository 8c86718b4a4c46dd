use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        assert!(amount > 0);
        assert_eq!(self.value, 0);
        assert_ne!(self.value, 1);
        debug_assert!(amount > 1);
        amount
    }
}

fn main() {}
