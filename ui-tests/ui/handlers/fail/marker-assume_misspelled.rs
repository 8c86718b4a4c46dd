use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    #[asume_infallible = "it is there"]
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.checked_add(amount).unwrap();
        self.value
    }
}

fn main() {}
