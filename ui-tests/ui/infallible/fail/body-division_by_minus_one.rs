use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Negate { value: i64 },
}

#[derive(Default, State)]
struct Machine {
    value: i64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn negate(&mut self, value: i64) -> i64 {
        self.value = value / -1;
        value % (-1)
    }
}

fn main() {}
