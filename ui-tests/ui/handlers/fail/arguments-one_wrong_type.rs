use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Move { from: u64, to: u64, amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn r#move(&mut self, from: u64, to: u32, amount: u64) -> u64 {
        self.value = from.max(to.into());
        amount
    }
}

fn main() {}
