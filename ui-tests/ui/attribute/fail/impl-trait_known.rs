use session_runtime::{State, StateMachine, state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Clone for Machine {
    fn clone(&self) -> Self {
        Self { value: [self.value][0] }
    }
}

fn main() {
    let _ = <Machine as StateMachine>::SCHEMA;
}
