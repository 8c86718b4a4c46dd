use session_runtime::{State, state_machine};

#[state_machine]
enum Ask<T> {
    Add { amount: T },
    #[since = 2]
    Reset,
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask<u64>)]
impl Machine {
    fn add(&mut self, amount: u64) {
        self.value = self.value.saturating_add(amount);
    }

    fn reset(&mut self) {
        self.value = 0;
    }
}

fn main() {}
