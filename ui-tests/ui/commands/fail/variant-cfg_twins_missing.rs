use session_runtime::state_machine;

#[state_machine]
enum Ask {
    #[cfg(any())]
    Add { amount: u64 },
    #[cfg(not(all()))]
    Add { amount: u64 },
    Reset,
}

fn main() {}
