use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
    Reset,
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    async fn add(&mut self, amount: &u64) -> &u64 {
        self.value = *amount;
        &self.value
    }

    fn reset<T>(self) -> impl Copy {
        self.value.checked_div(0).unwrap()
    }
}

fn main() {}
