#![deny(warnings)]
use session_runtime::{Deterministic, State, state_machine};

#[derive(Clone, serde::Serialize, serde::Deserialize, Deterministic)]
pub struct AskHandlers(u64);

#[state_machine]
pub enum Ask {
    Add { to: AskHandlers },
}

#[derive(Default, State)]
pub struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, to: AskHandlers) -> AskHandlers {
        self.value = to.0;
        to
    }
}

fn main() {}
