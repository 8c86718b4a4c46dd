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
    fn add(&mut self, amount: u64) -> u64 {
        self.value = amount;
        self.
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

fn main() {
    let _ = MachineQuery::Value {};
    let _: Option<MachineClient<u64>> = None;
}
