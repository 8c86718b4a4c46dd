use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    #[since = 0]
    add { amount: usize },
    #[cfg(test)]
    Middle,
    Reset(#[serde(flatten)] f32),
}

fn main() {}
