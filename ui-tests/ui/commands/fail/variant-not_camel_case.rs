use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    add_all { amount: u64 },
    Open_Account,
    close,
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add_all(&mut self, amount: u64) {
        self.value = self.value.saturating_add(amount);
    }

    fn open_account(&mut self) {}

    fn close(&mut self) {}
}

fn main() {}
