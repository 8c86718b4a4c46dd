use session_runtime::Deterministic;
use std::rc::Rc;

#[derive(Deterministic)]
struct Node {
    next: Rc<u64>,
    raw: *const u64,
    count: std::sync::atomic::AtomicU64,
}

fn main() {}
