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
    fn set(&mut self, value: i64, _: u64) {
        self.value = value;
    }
}

fn main() {}
