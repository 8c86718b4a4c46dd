#![deny(warnings)]
use session_runtime::{Command, State, state_machine};

#[state_machine]
#[cfg_attr(all(), derive(Clone))]
pub enum CounterCommand {
    #[cfg_attr(all(), doc = "Adds.")]
    Add { amount: u64 },
    #[cfg(any())]
    Never { of: NoSuchType },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
    #[cfg(any())]
    none: NoSuchType,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    #[cfg_attr(all(), doc = "Adds.")]
    #[cfg_attr(any(), deprecated)]
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    #[cfg(any())]
    fn never(&mut self, of: NoSuchType) -> NoSuchType {
        of
    }

    #[cfg(any())]
    #[query]
    fn nothing(&self, of: NoSuchType) -> NoSuchType {
        of
    }

    #[cfg(any())]
    #[session_closed]
    fn forget(&mut self) {
        no_such_function();
    }
}

fn main() {
    assert_eq!(CounterCommand::VARIANTS.len(), 1);
    assert_eq!(Counter::SCHEMA.handlers.len(), 1);
    assert_eq!(Counter::SCHEMA.queries.len(), 0);
}
