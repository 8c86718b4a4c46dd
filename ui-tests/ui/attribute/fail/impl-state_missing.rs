use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

fn main() {}
