use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Add { amount },
    #[since = 2]
    Reset,
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    #[internal]
    fn reset(&mut self) -> u64 {
        0
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

fn main() {}
