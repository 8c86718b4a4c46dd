use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    #[cfg(all())]
    Add { amount: u64 },
    #[cfg(not(all()))]
    Add { amount: u32 },
    #[cfg(all())]
    #[since = 2]
    Reset,
    #[cfg(not(all()))]
    Reset,
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    fn reset(&mut self) {
        self.value = 0;
    }
}

fn main() {}
