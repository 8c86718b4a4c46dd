use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

macro_rules! machine {
    ($body:block) => {
        #[state_machine(command = Ask)]
        impl Machine {
            fn add(&mut self, amount: u64) -> u64 $body
        }
    };
}

machine!({ None.unwrap() });

fn main() {}
