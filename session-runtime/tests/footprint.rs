//! What each guarantee costs: memory and snapshot bytes a client, bytes an entry. The figures of the book's page
//! `guides/which-guarantee.md`; to see them:
//!
//! ```text
//! cargo test -p session-runtime --test footprint -- --nocapture
//! ```

mod support;

use peak_alloc::PeakAlloc;
use session_runtime::ids::{Id, IdAction, IdEntry, IdStateMachine};
use session_runtime::serials::{ClientId, SerialAction, SerialEntry, SerialKey, SerialStateMachine};
use session_runtime::{Bytes, Command, Entry, SessionId, SessionStateMachine, Snapshot, Timestamp};
use support::*;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const CLIENTS: u64 = 20_000;

/// A moment some days after the start of the log.
const TIME: Timestamp = Timestamp(500_000_000);

/// One line of the page's table.
struct Row {
    what: &'static str,
    heap: u64,
    snapshot: u64,
    entry: usize,
}

impl Row {
    fn text(&self) -> String {
        format!("| {} | {} | {} | {} |", self.what, self.heap, self.snapshot, self.entry)
    }
}

/// Fills a machine with so many clients, and divides what that takes by their number.
fn measure<M>(
    what: &'static str,
    entry: usize,
    mut machine: M,
    mut add_client: impl FnMut(&mut M, u64),
    snapshot: impl Fn(&M) -> Snapshot,
) -> Row {
    let size = |machine: &M| snapshot(machine).to_bytes().unwrap().len();
    let (heap_before, size_before) = (HEAP.current_usage(), size(&machine));
    for number in 1..=CLIENTS {
        add_client(&mut machine, number);
    }
    let heap = HEAP.current_usage().saturating_sub(heap_before) as u64 / CLIENTS;
    Row { what, heap, snapshot: (size(&machine) - size_before) as u64 / CLIENTS, entry }
}

fn payload() -> Bytes {
    DeskCommand::Add { amount: 5 }.encode()
}

/// A client with a session, whose last answer is kept.
fn sessions() -> Row {
    let session = |number: u64| SessionId::draw(number, number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63);
    let request = |number| request_with(session(number), 7, 7, 0, payload());
    let entry = Entry { time: TIME, action: request(5_000) }.encode().len() - payload().len();
    measure(
        "sessions: a client, its last answer kept",
        entry,
        SessionStateMachine::new(Desk::<2>::default()),
        |machine, number| {
            machine.apply(2 * number, TIME, create(session(number))).unwrap();
            machine.apply(2 * number + 1, TIME, request(number)).unwrap();
        },
        |machine| machine.snapshot().unwrap(),
    )
}

fn serials(what: &'static str, client: impl Fn(u64) -> ClientId) -> Row {
    let command = |number| {
        let key = Some(SerialKey { client: client(number), serial: 7 });
        SerialAction::Command { key, payload: payload() }
    };
    let entry = SerialEntry { time: TIME, action: command(5_000) }.encode().len() - payload().len();
    measure(
        what,
        entry,
        SerialStateMachine::new(Desk::<2>::default()),
        |machine, number| {
            machine.apply(number, TIME, command(number)).unwrap();
        },
        |machine| machine.snapshot().unwrap(),
    )
}

fn ids(what: &'static str, acknowledged: bool) -> Row {
    let id = |number: u64| Id::of_request(&number.to_le_bytes());
    let request = |number: u64| IdAction::Request {
        id: id(number),
        acked: Some(id(if acknowledged { number - 1 } else { 0 })),
        payload: payload(),
    };
    let entry = IdEntry { time: TIME, action: request(5_000) }.encode().len() - payload().len();
    measure(
        what,
        entry,
        IdStateMachine::new(Desk::<2>::default()),
        |machine, number| {
            machine.apply(number, TIME, request(number)).unwrap();
        },
        |machine| machine.snapshot().unwrap(),
    )
}

#[test]
fn the_page_says_what_each_guarantee_costs() {
    let rows = [
        sessions(),
        serials("serials: a client with a durable id", |number| {
            ClientId::from(format!("service-{number:08}").as_str())
        }),
        serials("serials: a node with an automatic id", |number| {
            ClientId::auto(&format!("node-{number:08}"), number)
        }),
        ids("ids: a request whose answer is kept", false),
        ids("ids: an acknowledged request, for the retention", true),
    ];
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/src/guides/which-guarantee.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    for row in &rows {
        println!("{}", row.text());
    }
    for row in &rows {
        let start = format!("| {} | ", row.what);
        let line = page.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("the page lacks the row: {}", row.text()));
        let cells: Vec<u64> = line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        let [heap, snapshot, entry] = cells[..] else { panic!("three numbers: {line}") };
        assert_eq!((snapshot, entry), (row.snapshot, row.entry as u64), "{}", row.what);
        // What the standard library's maps take differs from release to release.
        assert!(heap.abs_diff(row.heap) * 4 <= row.heap, "{}: measured {}", line, row.heap);
    }
}
