use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Name { name: String },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn name(&mut self, name: &str) -> u64 {
        self.value.max(u64::from(name.is_empty()))
    }
}

fn main() {}
