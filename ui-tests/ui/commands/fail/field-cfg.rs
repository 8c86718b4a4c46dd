use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    Add {
        #[cfg(test)]
        amount: u64,
    },
}

fn main() {}
