use session_runtime::Deterministic;

#[derive(Deterministic)]
#[deterministic(crat = session_runtime)]
struct Reading {
    celsius: u32,
}

fn main() {}
