// A context whose type is a `ty` fragment of `macro_rules!`.
#![deny(warnings)]

use session_runtime::{Context, SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Mark,
}

#[derive(Default, State)]
pub struct Marker {
    value: u64,
}

macro_rules! machine {
    ($cx:ty) => {
        #[state_machine(command = Command)]
        impl Marker {
            fn mark(&mut self, cx: $cx) -> u64 {
                self.value = cx.index();
                self.value
            }
        }
    };
}

machine!(&mut Context<'_>);

fn main() {
    let mut marker = SessionStateMachine::new(Marker::default());
    assert_eq!(log::ask::<_, u64>(&mut marker, &Command::Mark), 1);
}

#[path = "../../log.rs"]
mod log;
