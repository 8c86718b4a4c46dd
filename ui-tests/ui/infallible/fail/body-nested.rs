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
        let texts = vec![format!("{}", vec![Some(amount)].pop().unwrap().unwrap_or_default())];
        fn helper(amount: Option<u64>) -> u64 {
            amount.expect("some")
        }
        match texts.len() {
            0 if self.value / amount == 1 => helper(None),
            _ => amount,
        }
    }
}

fn main() {}
