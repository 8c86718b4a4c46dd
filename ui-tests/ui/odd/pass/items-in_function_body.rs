#![deny(warnings)]

fn main() {
    use session_runtime::{State, state_machine};

    #[state_machine]
    enum CounterCommand {
        Add { amount: Amount },
    }

    #[derive(Clone, Copy, serde::Serialize, serde::Deserialize, session_runtime::Deterministic)]
    struct Amount(u64);

    #[derive(Default, State)]
    struct Counter {
        value: u64,
    }

    #[state_machine(command = CounterCommand)]
    impl Counter {
        fn add(&mut self, amount: Amount) -> u64 {
            self.value = amount.0;
            self.value
        }

        #[query]
        fn value(&self) -> u64 {
            self.value
        }
    }

    let _ = CounterCommand::Add { amount: Amount(1) };
    assert_eq!(Counter::default().add(Amount(2)), 2);
}
