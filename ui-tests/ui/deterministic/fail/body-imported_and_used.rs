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
        use std::collections::HashMap as Table;
        use std::fs::{self};
        let table: Table<u64, u64> = Table::new();
        fs::read("limit").map_or(amount, |limit| limit.len().max(table.len()) as u64)
    }
}

fn main() {}
