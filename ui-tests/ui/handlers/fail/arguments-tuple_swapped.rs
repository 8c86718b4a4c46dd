use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Rename(u64, String),
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn rename(&mut self, name: String, id: u64) -> u64 {
        self.value = id;
        name.len() as u64
    }
}

fn main() {}
