#![deny(warnings)]
use session_runtime::{State, state_machine};

#[state_machine]
enum CounterCommand {
    Add { amount: u64 },
}

type Result<T> = std::result::Result<T, std::fmt::Error>;

/// What the alias is for.
pub fn format() -> Result<()> {
    Ok(())
}

#[derive(Default, State)]
struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

fn main() {
    let _ = format();
    let _ = CounterCommand::Add { amount: 1 };
    let _ = Counter::default();
}
