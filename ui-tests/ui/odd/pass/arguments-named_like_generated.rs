#![deny(warnings)]
use session_runtime::{Context, State, state_machine};

#[state_machine]
pub enum CounterCommand {
    Add { state: u64, cx: u64, command: u64, result: u64, self_: u64, add: u64 },
    Fields { fields: u64, value: u64, call: u64, payload: u64, query: u64, out: u64 },
}

#[derive(Default, State)]
pub struct Counter {
    out: u64,
    from: u64,
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, context: &mut Context<'_>, state: u64, cx: u64, command: u64, result: u64, self_: u64, add: u64) -> u64 {
        self.out = state.max(cx).max(command).max(result).max(self_).max(add);
        context.index()
    }

    fn fields(&mut self, fields: u64, value: u64, call: u64, payload: u64, query: u64, out: u64) -> u64 {
        self.from = fields.max(value).max(call).max(payload).max(query).max(out);
        self.value
    }

    #[query]
    fn look(&self, call: u64, query: u64, answer: u64) -> u64 {
        call.max(query).max(answer)
    }
}

fn main() {}
