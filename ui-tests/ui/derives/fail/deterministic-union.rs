use session_runtime::Deterministic;

#[derive(Deterministic)]
union Either {
    small: u8,
    large: u64,
}

fn main() {}
