use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    #[cfg(test)]
    Add { amount: u64 },
    Reset,
}

fn main() {}
