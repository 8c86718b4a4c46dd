use session_runtime::{State, StateMachine, state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask, client = Caller, query = Caller)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

fn main() {
    let _ = <Machine as StateMachine>::SCHEMA;
}
