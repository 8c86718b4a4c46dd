use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Set { key: u64, value: u32, at: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u32,
}

#[state_machine(command = Ask)]
impl Machine {
    fn set(&mut self, kye: u64, value: u32, att: u64) -> u64 {
        self.value = value;
        kye.max(att)
    }
}

fn main() {}
