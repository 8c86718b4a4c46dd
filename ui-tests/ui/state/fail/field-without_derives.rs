use session_runtime::State;

struct Account {
    balance: u64,
}

#[derive(State)]
struct Machine {
    account: Account,
}

fn main() {}
