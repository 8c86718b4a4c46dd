// A `block` fragment of a `macro_rules!` comes in a group that nobody sees.
use session_runtime::{State, state_machine};

#[state_machine]
pub enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
pub struct Machine {
    value: u64,
}

macro_rules! machine {
    ($add:block, $value:block, $result:ty) => {
        #[state_machine(command = Ask)]
        impl Machine {
            fn add(&mut self, amount: u64) -> $result {
                let _ = amount;
                $add
            }

            #[query]
            fn value(&self) -> $result $value
        }
    };
}

machine!({ 1 }, { 2 }, u64);

fn main() {
    assert_eq!(Machine::default().add(3), 1);
    assert_eq!(Machine::default().value(), 2);
}
