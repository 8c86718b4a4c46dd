use session_runtime::state_machine;

#[state_machine]
enum Ask {
    Name { name: &'static str },
}

fn main() {}
