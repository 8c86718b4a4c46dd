// An impl block made by `macro_rules!` on a state given as a `ty` fragment.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Reset,
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

macro_rules! machine {
    ($state:ty) => {
        #[state_machine(command = Command)]
        impl $state {
            fn reset(&mut self) -> u64 {
                std::mem::take(&mut self.value)
            }
        }
    };
}

machine!(Counter);

fn main() {
    let mut counter = SessionStateMachine::new(Counter { value: 4 });
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Reset), 4);
    assert_eq!(Counter::SCHEMA.name, "Counter");
    let client = CounterClient::new(log::Local::new(Counter { value: 2 }));
    assert_eq!(log::now(client.reset()), Ok(2));
}

#[path = "../../log.rs"]
mod log;
