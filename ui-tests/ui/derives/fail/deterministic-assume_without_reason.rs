use session_runtime::Deterministic;

#[derive(Deterministic)]
struct Reading {
    #[assume_deterministic]
    celsius: f32,
}

fn main() {}
