pub mod machine {
    use session_runtime::{State, state_machine};

    #[state_machine]
    pub enum Ask {
        Add { amount: u64 },
    }

    #[derive(Default, State)]
    pub struct Machine {
        value: u64,
    }

    #[state_machine(command = Ask, query = pub(crate) Reads)]
    impl Machine {
        fn add(&mut self, amount: u64) -> u64 {
            self.value = amount;
            amount
        }

        #[query]
        fn value(&self) -> u64 {
            self.value
        }
    }
}

fn main() {}
