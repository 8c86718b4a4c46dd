use session_runtime::{State, state_machine};

struct Ask;

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        self.value.saturating_add(amount)
    }
}

fn main() {}
