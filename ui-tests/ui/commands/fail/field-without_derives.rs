use session_runtime::{State, state_machine};

struct Account {
    owner: String,
}

#[state_machine]
enum Ask {
    Open { account: Account, limit: u64 },
    Close(Account),
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn open(&mut self, account: Account, limit: u64) -> u64 {
        let _ = account;
        limit
    }

    fn close(&mut self, _: Account) {}
}

fn main() {}
