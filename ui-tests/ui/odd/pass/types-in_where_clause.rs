// A user type named `C` that only a where clause of the machine names.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, Wire, state_machine};

#[derive(Clone, Copy)]
pub struct C(u64);

impl From<C> for u64 {
    fn from(c: C) -> Self {
        c.0
    }
}

#[state_machine]
pub enum Command {
    Set,
}

#[derive(Default, State)]
pub struct Cell<T> {
    value: T,
}

#[state_machine(command = Command)]
impl<T> Cell<T>
where
    T: Wire + Clone + From<C>,
{
    fn set(&mut self) -> T {
        self.value = T::from(crate::C(3));
        self.value.clone()
    }
}

fn main() {
    let mut cell = SessionStateMachine::new(Cell::<u64>::default());
    assert_eq!(log::ask::<_, u64>(&mut cell, &Command::Set), 3);
    let client = CellClient::<_, u64>::new(log::Local::new(Cell::<u64>::default()));
    assert_eq!(log::now(client.set()), Ok(3));
}

#[path = "../../log.rs"]
mod log;
