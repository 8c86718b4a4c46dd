use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Reset,
}

#[derive(Default, State)]
struct Machine {
    value: i64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn reset(&mut self) {
        self.value = 0;
    }

    fn _1st(&mut self) -> i64 {
        self.value
    }
}

fn main() {}
