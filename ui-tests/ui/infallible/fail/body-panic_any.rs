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
        use std::panic::resume_unwind;
        if amount > 5 {
            std::panic::panic_any("too much");
        }
        resume_unwind(Box::new(amount))
    }
}

fn main() {}
