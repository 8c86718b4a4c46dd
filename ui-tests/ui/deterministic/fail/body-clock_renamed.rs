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
        let started = Clock::now();
        use std::time::Instant as Clock;
        use std::time::{self as clocks, SystemTime as Wall};
        let _ = (Wall::now(), clocks::SystemTime::now(), std::time::UNIX_EPOCH.elapsed());
        started.elapsed().as_secs().max(amount)
    }
}

fn main() {}
