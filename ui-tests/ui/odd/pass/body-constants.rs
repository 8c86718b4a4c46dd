// What the compiler computes cannot fail at run time; a user's own modules may be called as they like.
#![deny(warnings)]

use session_runtime::{State, state_machine};

mod own {
    pub(crate) mod env {
        pub(crate) fn var(of: u64) -> u64 {
            of
        }
    }

    pub(crate) struct Clock;

    impl Clock {
        pub(crate) fn elapsed(&self) -> u64 {
            0
        }
    }
}

#[state_machine]
enum Command {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        use own::{Clock, env};
        const LIMIT: u64 = match 7u64.checked_add(1) {
            Some(limit) => limit / 2,
            None => panic!("too much"),
        };
        const { assert!(LIMIT > 2) };
        self.value = env::var(amount).min(LIMIT).max(Clock.elapsed());
        self.value
    }
}

fn main() {
    let mut counter = Counter::default();
    assert_eq!(counter.add(9), 4);
}
