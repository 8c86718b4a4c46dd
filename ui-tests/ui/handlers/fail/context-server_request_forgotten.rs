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
    fn add(&mut self, cx: &mut Context<'_, String>, amount: u64) -> u64 {
        amount.max(cx.index())
    }

    fn reset(&mut self, cx: &mut Context<'_, String>) {
        self.value = cx.index();
    }

    #[session_closed]
    fn forget(&mut self, cx: &mut Context<'_, String>) {
        self.value = cx.index();
    }
}

fn main() {}
