use session_runtime::State;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

#[derive(State)]
struct Machine {
    a: f32,
    b: f64,
    c: HashSet<u64>,
    d: SystemTime,
    e: Rc<u64>,
    f: AtomicU64,
    g: *const u64,
    h: &'static str,
    i: Result<u64, u64>,
    j: Box<dyn Fn()>,
}

fn main() {}
