use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Lock,
    Unlock,
}

#[derive(Default, State)]
struct Machine {
    locked: bool,
}

#[state_machine(command = Ask)]
impl Machine {
    fn lock(&mut self) {
        self.locked = true;
    }

    fn ulock(&mut self) {
        self.locked = false;
    }
}

fn main() {}
