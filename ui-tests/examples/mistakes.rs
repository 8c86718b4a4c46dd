//! A machine whose mistakes the macros cannot read off its tokens, for the test `clippy`, which is the only one to
//! build them.
#![allow(unexpected_cfgs)] // the test's own

#[cfg(mistakes)]
mod machine {
    use session_runtime::{State, state_machine};

    // The macros read into the arguments of a few macros only.
    macro_rules! kept {
        ($of:expr) => {
            $of
        };
    }

    #[state_machine]
    pub(crate) enum Command {
        Add { amount: u64 },
        Vouched { amount: u64 },
    }

    #[derive(Default, State)]
    pub(crate) struct Counter {
        value: u64,
    }

    #[state_machine(command = Command)]
    impl Counter {
        fn add(&mut self, amount: u64) -> u64 {
            let values = [Some(amount)];
            if amount > 5 {
                kept!(panic!("too much"));
            }
            let first: Option<u64> = kept!(values[self.value as usize]);
            self.value += kept!(first.unwrap());
            kept!(first.expect("it is there"))
        }

        #[assume_infallible = "small numbers"]
        fn vouched(&mut self, amount: u64) -> u64 {
            let values = [Some(amount)];
            let first: Option<u64> = kept!(values[self.value as usize]);
            self.value += kept!(first.unwrap());
            kept!(first.expect("it is there"))
        }
    }
}

fn main() {}
