use session_runtime::Deterministic;

#[derive(Deterministic)]
enum Reading {
    Celsius(f32),
    Count { of: usize },
    Nothing,
}

fn main() {}
