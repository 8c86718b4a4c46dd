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
        let _ = <std::time::Instant>::now();
        let _ = <std::fs::File>::open("name");
        amount
    }
}

fn main() {}
