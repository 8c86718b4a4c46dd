use session_runtime::{Context, State, state_machine};

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
    fn add(&mut self, cx: &Context<'_>, amount: u64) -> u64 {
        amount.max(cx.index())
    }
}

fn main() {}
