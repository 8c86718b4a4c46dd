use session_runtime::client::Call;
use session_runtime::{State, state_machine};

#[state_machine]
pub enum Ask {
    Add { amount: u64 },
    Reset,
}

#[derive(Default, State)]
pub struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = amount;
        amount
    }

    #[internal]
    fn reset(&mut self) {
        self.value = 0;
    }
}

pub async fn run<C: Call>(client: &MachineClient<C>) {
    let _ = client.add(5).await;
    let _ = client.reset().await;
}

fn main() {}
