use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Pair { value: i64, _value: i64 },
}

#[derive(Default, State)]
struct Machine {
    value: i64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn pair(&mut self, _value: i64, value: i64) {
        self.value = value;
    }
}

fn main() {}
