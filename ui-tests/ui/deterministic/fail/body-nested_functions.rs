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
        async fn later() {}
        unsafe fn outside() {}
        struct Own;
        unsafe impl Send for Own {}
        impl Own {
            async fn later() {
                std::future::ready(()).await
            }
        }
        amount
    }
}

fn main() {}
