use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    AddAll { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add_all(&mut self, amount: u64) -> u64 {
        self.value = amount;
        amount
    }

    fn add__all(&mut self, amount: u64) -> u64 {
        self.value = amount;
        amount
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }

    #[query]
    fn value_(&self) -> u64 {
        self.value
    }
}

fn main() {}
