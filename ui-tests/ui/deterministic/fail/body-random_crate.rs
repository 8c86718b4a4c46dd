use session_runtime::{State, state_machine};

mod rand {
    pub fn random<T: Default>() -> T {
        T::default()
    }
}

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
        rand::random::<u64>().max(amount)
    }
}

fn main() {}
