use session_runtime::{State, state_machine};

#[state_machine]
pub enum CellCommand {
    Put { value: u64 },
}

#[derive(Default, State)]
pub struct Cell<T> {
    value: Option<T>,
}

#[state_machine(command = CellCommand, name = "cell")]
impl Cell<u64> {
    fn put(&mut self, value: u64) -> Option<u64> {
        self.value.replace(value)
    }
}

fn main() {
    assert_eq!(Cell::<u64>::SCHEMA.name, "cell");
}
