#![deny(warnings)]
pub mod outer {
    pub mod inner {
        use session_runtime::{State, state_machine};

        #[state_machine]
        pub(crate) enum InnerCommand {
            Add { amount: u64 },
        }

        #[derive(Default, State)]
        pub(super) struct Inner {
            value: u64,
        }

        #[state_machine(command = InnerCommand, query = pub(super) InnerAsk, client = pub(super) InnerCaller)]
        impl Inner {
            pub(super) fn add(&mut self, amount: u64) -> u64 {
                self.value.max(amount)
            }

            #[query]
            pub(crate) fn value(&self) -> u64 {
                self.value
            }
        }
    }

    /// Uses them from the module they are visible in.
    pub fn run() -> u64 {
        let _ = inner::InnerCommand::Add { amount: 1 };
        let _ = session_runtime::Query::encode(&inner::InnerAsk::Value {});
        inner::Inner::default().add(1)
    }
}

fn main() {
    assert_eq!(outer::run(), 1);
}
