use session_runtime::state_machine;

#[state_machine]
enum Ask {
    #[cfg_attr(all(), cfg(any()))]
    Add { amount: u64 },
    Reset,
}

fn main() {}
