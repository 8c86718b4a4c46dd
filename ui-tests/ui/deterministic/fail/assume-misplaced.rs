use session_runtime::{Deterministic, State, state_machine};

#[state_machine]
#[assume_deterministic = "checked"]
enum Ask {
    #[assume_deterministic = "checked"]
    Add { amount: f64 },
}

#[derive(Deterministic)]
#[assume_deterministic = "checked"]
struct Name(f64);

#[derive(Deterministic)]
enum Side {
    Left,
    #[assume_deterministic = "checked"]
    Right(f64),
}

#[derive(Default, State)]
#[assume_deterministic = "checked"]
struct Machine {
    value: f64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: f64) {
        self.value += amount;
    }
}

fn main() {}
