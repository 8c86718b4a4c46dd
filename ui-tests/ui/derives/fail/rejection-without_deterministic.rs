use serde::{Deserialize, Serialize};
use session_runtime::{Rejection, State, state_machine};

#[derive(Serialize, Deserialize, Rejection)]
enum Refused {
    TooMuch,
}

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> Result<u64, Refused> {
        self.value = self.value.checked_add(amount).ok_or(Refused::TooMuch)?;
        Ok(self.value)
    }
}

fn main() {}
