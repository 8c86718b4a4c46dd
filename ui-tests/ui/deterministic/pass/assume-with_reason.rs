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
    #[assume_deterministic = "the map is only asked for its length"]
    fn add(&mut self, amount: u64) -> u64 {
        let map = std::collections::HashMap::from([(amount, amount)]);
        self.value.saturating_add(map.len() as u64)
    }
}

fn main() {}
