use session_runtime::{Command, State, state_machine};

#[state_machine]
pub enum CounterCommand {
    #[cfg(all())]
    Add { amount: u64 },
    #[cfg(any())]
    /// Not in this build.
    Add {
        /// The same, written differently.
        amount: u64,
    },
    Reset,
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    #[cfg(all())]
    fn add(&mut self, amount: u64) -> u64 {
        self.value.max(amount)
    }

    #[cfg(any())]
    fn add(&mut self, amount: u64) -> u64 {
        amount
    }

    fn reset(&mut self) {
        self.value = 0;
    }

    #[cfg(all())]
    #[session_closed]
    fn forget(&mut self) {}

    #[cfg(any())]
    #[session_closed]
    fn forget(&mut self) {}
}

fn main() {
    assert_eq!(CounterCommand::VARIANTS.len(), 2);
}
