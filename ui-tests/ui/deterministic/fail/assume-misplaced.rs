use session_runtime::{Deterministic, State, state_machine};

#[state_machine]
#[assume_deterministic = "checked"]
enum Ask {
    #[assume_deterministic = "checked"]
    Add { amount: u64 },
}

#[derive(Deterministic)]
#[assume_deterministic = "checked"]
struct Name(String);

#[derive(Deterministic)]
enum Side {
    Left,
    #[assume_deterministic = "checked"]
    Right,
}

#[derive(Default, State)]
#[assume_deterministic = "checked"]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

fn main() {}
