#![deny(warnings)]
use session_runtime::{Command, State, state_machine};

macro_rules! commands {
    ($name:ident { $($variant:ident($type:ty)),* $(,)? }) => {
        #[state_machine]
        pub enum $name {
            $($variant { amount: $type }),*
        }
    };
}

commands!(CounterCommand { Add(u64), Take(Option<u64>) });

macro_rules! machine {
    ($machine:ident, $command:ty, $($handler:ident: $type:ty),*) => {
        #[derive(Default, State)]
        pub struct $machine {
            value: u64,
        }

        #[state_machine(command = $command)]
        impl $machine {
            $(fn $handler(&mut self, amount: $type) -> $type {
                amount
            })*
        }
    };
}

machine!(Counter, CounterCommand, add: u64, take: Option<u64>);

fn main() {
    assert_eq!(CounterCommand::Add { amount: 1 }.name(), "Add");
}
