#![deny(warnings)]
pub mod protocol {
    use session_runtime::state_machine;

    #[state_machine]
    #[derive(Clone)]
    pub enum Ask {
        Add { amount: u64 },
        Reset,
    }
}

pub mod machine {
    use session_runtime::{State, state_machine};

    #[derive(Default, State)]
    pub struct Counter {
        value: u64,
    }

    #[state_machine(command = super::protocol::Ask, name = "counter", version = 3, client = Caller, query = Read)]
    impl Counter {
        pub fn add(&mut self, amount: u64) -> u64 {
            self.value = self.value.saturating_add(amount);
            self.value
        }

        fn reset(&mut self) {
            self.value = 0;
        }

        #[query]
        fn value(&self) -> u64 {
            self.value
        }
    }
}

fn main() {
    use session_runtime::Query;
    let _ = machine::Read::Value {}.encode();
    assert_eq!(machine::Counter::SCHEMA.version, 3);
    assert_eq!(machine::Counter::default().add(1), 1);
}
