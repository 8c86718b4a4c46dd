use session_runtime::{Context, State, state_machine};

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
    const fn add<'a>(&mut self, _cx: &mut Context<'a>, amount: u64) -> u64 {
        self.value = amount;
        amount
    }

    fn reset<'a>(&'a mut self, cx: &mut Context<'_>) {
        self.value = cx.index();
    }
}

fn main() {}
