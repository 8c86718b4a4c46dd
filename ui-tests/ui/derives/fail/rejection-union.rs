use session_runtime::Rejection;

#[derive(Rejection)]
union Refused {
    small: u8,
    large: u64,
}

fn main() {}
