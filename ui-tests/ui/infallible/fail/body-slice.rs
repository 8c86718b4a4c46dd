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
    fn add(&mut self, amount: u64) -> u64 {
        let name = "name";
        name[1..].len() as u64 + name.as_bytes()[0..2].len() as u64 + amount
    }
}

fn main() {}
