use session_runtime::Rejection;

#[derive(Rejection)]
enum Refused {
    TooMuch,
}

fn main() {}
