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
    fn add(&mut self, amount: u64, amount: u64) -> u64 {
        amount
    }

    #[query]
    fn between(&self, least: u64, least: u64) -> u64 {
        least
    }
}

fn main() {}
