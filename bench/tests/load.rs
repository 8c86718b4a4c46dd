//! The short version of `cargo run --release -p session-bench --bin load`.

use peak_alloc::PeakAlloc;
use session_bench::load::{Plan, run};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

#[test]
fn a_load_is_held_and_its_memory_given_back() {
    let plan = Plan { sessions: 4_000, entries: 60_000, snapshots: 6, seed: 1 };
    let figures = run(&plan, || HEAP.current_usage(), |_| {});
    println!("{figures}");
    let happened = [
        figures.requests,
        figures.copies,
        figures.evicted,
        figures.mismatches,
        figures.too_late,
        figures.refused,
        figures.told,
        figures.told_again,
        figures.acks,
        figures.expired,
        figures.idle,
        figures.slow,
    ];
    assert!(happened.iter().all(|times| *times > 10), "each of it must happen: {figures}");
    assert_eq!((figures.most_open, figures.restored, figures.replicas), (4_000, 3, 3));
    assert!(figures.left() <= 64 << 10, "{} bytes are left", figures.left());
}
