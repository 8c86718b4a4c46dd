use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Set { value: i64, by: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: i64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn set(&mut self, amount: i64, by: u64) -> u64 {
        self.value = amount;
        by
    }
}

fn main() {}
