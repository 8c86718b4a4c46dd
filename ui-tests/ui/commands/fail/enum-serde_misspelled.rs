use session_runtime::{State, state_machine};

#[state_machine]
#[serde(deny_unknown_fields, serde_json)]
enum Ask {
    #[serde(rename)]
    Add {
        #[serde(deafult)]
        amount: u64,
    },
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
}

fn main() {}
