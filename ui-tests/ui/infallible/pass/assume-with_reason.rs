use session_runtime::{State, state_machine};

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
    /// Adds.
    #[assume_infallible = "the table has an entry for every remainder of three"]
    pub fn add(&mut self, amount: u64) -> u64 {
        let table = [1, 2, 3];
        table[(amount % 3) as usize]
    }
}

fn main() {}
