use session_runtime::state_machine;

#[state_machine]
enum Ask<T> {
    Add { amount: T },
}

fn main() {}
