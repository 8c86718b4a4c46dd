//! What the session table costs, and how that changes with the number of sessions.
//!
//! `cargo run --release -p session-bench --bin costs [naive] [shapes] [snapshots] [memory]` takes two minutes and 2 GB
//! of memory. Times are of the processor, not of the clock. Figures that are compared were measured in turns, and are
//! the medians of many rounds, so that a busy machine does the same harm to both.
//!
//! `costs profile SESSIONS new` (or `copies`) does nothing but such requests, for a profiler to look at.

use cpu_time::ThreadTime;
use session_runtime::rand_core::Rng;
use session_runtime::{
    Bytes, Command, Context, Limits, RaftAction, RequestId, ServerAction, ServerRequestId, SessionId,
    SessionStateMachine, State, Timestamp, state_machine, testing::Dice,
};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;
const ROUNDS: usize = 101;
/// How many entries are timed at once: so few that the entries themselves stay in the processor's cache.
const BATCH: usize = 2_000;

/// What clients may ask of the ledger.
#[state_machine]
enum LedgerCommand {
    /// Adds, and answers with 17 bytes.
    Add { amount: u64 },
    /// Sends something to everybody.
    Tell,
}

/// A machine that does next to nothing.
#[derive(State)]
struct Ledger {
    total: u128,
}

#[state_machine(command = LedgerCommand, server_request = u64)]
impl Ledger {
    fn add(&mut self, amount: u64) -> u128 {
        self.total = self.total.wrapping_add(u128::from(amount));
        self.total
    }

    fn tell(&mut self, cx: &mut Context<'_, u64>) -> u128 {
        cx.broadcast(7);
        self.total
    }
}

impl Ledger {
    /// So large that its answers have 17 bytes.
    fn new() -> Self {
        Self { total: 1 << 100 }
    }
}

/// The least that one could do: a watermark and the answers of each client.
struct Naive {
    ledger: Ledger,
    clients: HashMap<u64, (u64, BTreeMap<u64, Vec<u8>>)>,
}

impl Naive {
    /// Takes the same entries. It decodes and encodes nothing: every command adds 5, and an answer is written out.
    #[allow(clippy::needless_pass_by_value)] // as ours takes it
    fn apply(&mut self, action: RaftAction) -> Option<Vec<u8>> {
        let RaftAction::ClientRequest { session, request, lowest_pending, .. } = action else { return None };
        let (watermark, answers) = self.clients.get_mut(&key(session))?;
        *watermark = lowest_pending.0.max(*watermark);
        while let Some(first) = answers.first_entry()
            && *first.key() < *watermark
        {
            first.remove();
        }
        if request.0 < *watermark {
            return None;
        }
        if let Some(answer) = answers.get(&request.0) {
            return Some(answer.clone());
        }
        let mut answer = Vec::with_capacity(17);
        answer.push(0xfd);
        answer.extend_from_slice(&self.ledger.add(5).to_le_bytes());
        answers.insert(request.0, answer.clone());
        Some(answer)
    }
}

/// The random half of a session's id.
fn key(session: SessionId) -> u64 {
    u64::try_from(session.0 & u128::from(u64::MAX)).unwrap_or_default()
}

/// The machine, its log, and how far each of its clients is.
struct Table {
    machine: SessionStateMachine<Ledger>,
    index: u64,
    time: u64,
    clients: Vec<Client>,
    /// How many answers a client leaves unfetched.
    window: u64,
    dice: Dice,
    payload: Bytes,
    out: Vec<ServerAction>,
}

#[derive(Clone, Copy)]
struct Client {
    session: SessionId,
    request: u64,
}

impl Table {
    /// With so many sessions, each of which has made so many requests and fetched no answer.
    fn new(sessions: u64, requests: u64) -> Outcome<Self> {
        let mut table = Self {
            machine: SessionStateMachine::new(Ledger::new()),
            index: 0,
            time: 0,
            clients: Vec::new(),
            window: requests.max(1),
            dice: Dice::new(7),
            payload: LedgerCommand::Add { amount: 5 }.encode(),
            out: Vec::new(),
        };
        for _ in 0..sessions {
            table.open()?;
        }
        for _ in 0..requests {
            for number in 0..table.clients.len() {
                let client = &mut table.clients[number];
                client.request += 1;
                let action = request(*client, 1, &table.payload);
                table.apply(action)?;
            }
        }
        Ok(table)
    }

    fn open(&mut self) -> Outcome<()> {
        let session = SessionId::draw(self.index, self.dice.next_u64());
        self.clients.push(Client { session, request: 0 });
        self.apply(RaftAction::SessionCreationConfirmed { session, capabilities: BTreeMap::new() })
    }

    fn apply(&mut self, action: RaftAction) -> Outcome<()> {
        self.index += 1;
        // About a hundred entries in a millisecond.
        let time = Timestamp(self.time + self.index / 100);
        self.out.clear();
        Ok(self.machine.apply_into(self.index, time, action, &mut self.out)?)
    }

    /// One of so many clients, from all over the table.
    fn any_of(&mut self, active: u64) -> usize {
        let all = self.clients.len() as u64;
        usize::try_from(self.dice.below(active.min(all)) * (all / active.min(all))).unwrap_or_default()
    }

    /// Requests of so many active clients: new ones, each of which fetches the oldest answer, or copies of the last.
    fn requests(&mut self, count: usize, active: u64, new: bool) -> Vec<RaftAction> {
        (0..count)
            .map(|_| {
                let number = self.any_of(active);
                let client = &mut self.clients[number];
                client.request += u64::from(new);
                request(*client, (client.request + 1).saturating_sub(self.window), &self.payload)
            })
            .collect()
    }

    /// How long each of some entries takes.
    fn time_each(&mut self, actions: impl IntoIterator<Item = RaftAction>) -> Outcome<f64> {
        let (mut count, start) = (0_u32, ThreadTime::now());
        for action in actions {
            self.apply(action)?;
            count += 1;
        }
        Ok(nanoseconds(start.elapsed()) / f64::from(count))
    }
}

fn request(client: Client, lowest_pending: u64, payload: &Bytes) -> RaftAction {
    RaftAction::ClientRequest {
        session: client.session,
        request: RequestId(client.request),
        lowest_pending: RequestId(lowest_pending),
        acked: ServerRequestId(0),
        payload: payload.clone(),
    }
}

#[allow(clippy::cast_precision_loss)] // figures for people
fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Two costs, measured in turns, and the median of their ratios.
fn in_turns(mut measure: impl FnMut() -> Outcome<(f64, f64)>) -> Outcome<(f64, f64, f64)> {
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        all.push(measure()?);
    }
    let of = |figure: fn(&(f64, f64)) -> f64| median(all.iter().map(figure).collect());
    Ok((of(|(one, _)| *one), of(|(_, other)| *other), of(|(one, other)| one / other)))
}

/// Ours against the naive one.
#[allow(clippy::cast_precision_loss)] // figures for people
fn against_naive(sessions: u64) -> Outcome<()> {
    let mut table = Table::new(sessions, 1)?;
    let mut naive = Naive { ledger: Ledger::new(), clients: HashMap::new() };
    for client in &table.clients {
        naive.clients.insert(key(client.session), (1, BTreeMap::new()));
        naive.apply(request(*client, 1, &table.payload));
    }
    for (new, what) in [(true, "new request"), (false, "duplicate")] {
        let (ours, theirs, ratio) = in_turns(|| {
            let batch = table.requests(BATCH, MANY, new);
            let copy = batch.clone();
            let mut out = Vec::new();
            let start = ThreadTime::now();
            for action in copy {
                out.clear();
                out.push(naive.apply(action));
            }
            let theirs = nanoseconds(start.elapsed()) / BATCH as f64;
            black_box(&out);
            Ok((table.time_each(batch)?, theirs))
        })?;
        println!("  {sessions:>9}  {what:<12} {ours:>8.0} ns   naive {theirs:>6.0} ns   ratio {ratio:>5.2}");
    }
    Ok(())
}

/// One row of the table of shapes: the same entries at few and at many sessions.
fn shape(
    what: &str,
    few: &mut Table,
    many: &mut Table,
    mut actions: impl FnMut(&mut Table) -> Vec<RaftAction>,
) -> Outcome<()> {
    let (few, many, ratio) = in_turns(|| {
        let batch = actions(few);
        let one = few.time_each(batch)?;
        let batch = actions(many);
        Ok((many.time_each(batch)?, one))
    })
    .map(|(many, few, ratio)| (few, many, ratio))?;
    println!("  {what:<44} {few:>10.0} ns {many:>10.0} ns   ratio {ratio:>6.2}");
    Ok(())
}

fn shapes() -> Outcome<()> {
    let (mut few, mut many) = (Table::new(FEW, 1)?, Table::new(MANY, 1)?);
    for table in [&mut few, &mut many] {
        let limits = Limits { idle_timeout: Some(1 << 40), ..Limits::default() };
        table.apply(RaftAction::Configure { limits, seed: None })?;
    }
    println!("an entry, at {FEW} and at {MANY} sessions:");
    for (active, who) in [(FEW, "1000 active"), (MANY, "any")] {
        for (new, what) in [(true, "new request"), (false, "duplicate")] {
            let what = format!("{what}, of {who}");
            shape(&what, &mut few, &mut many, |table| table.requests(BATCH, active, new))?;
        }
    }
    shape("tick, nobody to close", &mut few, &mut many, |_| vec![RaftAction::Tick; BATCH])?;
    for table in [&mut few, &mut many] {
        table.apply(RaftAction::InternalCommand { payload: LedgerCommand::Tell.encode() })?;
        table.out = Vec::new();
    }
    let retry = RaftAction::GetRequestsForRetry { last_sent_before: Timestamp(0), limit: 0 };
    shape("retry, all have one pending and none is due", &mut few, &mut many, |_| {
        vec![retry.clone(); BATCH]
    })?;
    shape("retry of 100, all are due", &mut few, &mut many, |table| {
        let last_sent_before = table.machine.time();
        let retry = RaftAction::GetRequestsForRetry { last_sent_before, limit: 100 };
        table.time += 1;
        vec![retry]
    })?;
    shape("acknowledgment", &mut few, &mut many, |table| {
        let numbers: Vec<usize> = (0..20).map(|_| table.any_of(MANY)).collect();
        let session = |number: &usize| table.clients[*number].session;
        let ack = |session| RaftAction::ServerRequestAck { session, request: ServerRequestId(1) };
        numbers.iter().map(session).map(ack).collect()
    })?;
    shape("closing a session", &mut few, &mut many, |table| {
        let mut close = || {
            let number = table.any_of(MANY);
            RaftAction::SessionExpired { session: table.clients.swap_remove(number).session }
        };
        (0..5).map(|_| close()).collect()
    })?;
    for table in [&mut few, &mut many] {
        let limits = Limits { idle_timeout: Some(0), ..Limits::default() };
        let dead: Vec<SessionId> = table.clients.drain(..400).map(|client| client.session).collect();
        // All others give a sign of life, and then these are the idle ones.
        table.time += 10;
        let alive = |client: &Client| session_runtime::Alive {
            session: client.session,
            lowest_pending: RequestId(0),
            acked: ServerRequestId(0),
        };
        let sessions = table.clients.iter().map(alive).collect();
        table.apply(RaftAction::KeepAlive { sessions })?;
        let start = ThreadTime::now();
        table.apply(RaftAction::Configure { limits, seed: None })?;
        assert_eq!(table.out.len(), dead.len(), "each of them is closed");
        let each = nanoseconds(start.elapsed()) / 400.0;
        println!(
            "  {:<44} {each:>10.0} ns each at {}",
            "closing 400 idle sessions in one entry",
            table.clients.len()
        );
    }
    Ok(())
}

/// A table with as many closed ids as there are when every second entry closes a session.
fn with_closed(sessions: u64, requests: u64) -> Outcome<Table> {
    let mut table = Table::new(sessions, requests)?;
    for _ in 0..40_000 {
        table.open()?;
        if let Some(client) = table.clients.pop() {
            table.apply(RaftAction::SessionExpired { session: client.session })?;
        }
    }
    Ok(table)
}

/// The pause of taking a snapshot, in microseconds.
fn pause(table: &mut Table) -> Outcome<f64> {
    let batch = table.requests(10_000, MANY, true);
    table.time_each(batch)?;
    let start = ThreadTime::now();
    let snapshot = table.machine.snapshot()?;
    let pause = nanoseconds(start.elapsed()) / 1e3;
    drop(snapshot);
    Ok(pause)
}

/// What entries take while another thread encodes a snapshot, and while none does.
fn entries_while_encoding(table: &mut Table) -> Outcome<()> {
    for encoding in [false, true] {
        let snapshot = table.machine.snapshot()?;
        let encoder =
            std::thread::spawn(move || if encoding { snapshot.write_to(std::io::sink()) } else { Ok(()) });
        let mut times: Vec<f64> = Vec::new();
        while if encoding { !encoder.is_finished() } else { times.len() < 200_000 } {
            let action = table.requests(1, MANY, true).remove(0);
            let start = ThreadTime::now();
            table.apply(action)?;
            times.push(nanoseconds(start.elapsed()) / 1e3);
        }
        encoder.join().map_err(|_| "the encoder panicked")??;
        times.sort_by(f64::total_cmp);
        let at = |thousandths: usize| times[times.len() * thousandths / 1_000];
        println!(
            "  an entry, {:<26} median {:>4.1} us, p99 {:>5.1} us, p99.9 {:>5.1} us, of {}",
            if encoding { "while a snapshot is encoded" } else { "while none is" },
            at(500),
            at(990),
            at(999),
            times.len()
        );
    }
    Ok(())
}

fn snapshots() -> Outcome<()> {
    for answers in [1, 8] {
        println!("snapshots, {answers} answers a session, 32768 closed ids:");
        let (mut few, mut many) = (with_closed(FEW, answers)?, with_closed(MANY, answers)?);
        let (at_many, at_few, _) = in_turns(|| Ok((pause(&mut many)?, pause(&mut few)?)))?;
        println!("  pause of snapshot()  {at_few:>6.0} us at {FEW} sessions, {at_many:>6.0} us at {MANY}");
        entries_while_encoding(&mut many)?;
    }
    Ok(())
}

/// The memory of this process.
fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 = line.and_then(|line| line.trim().split(' ').next()).ok_or("no VmRSS")?.parse()?;
    Ok(kilobytes * 1024)
}

/// Prints what a session takes, in a process of its own.
fn memory(requests: u64) -> Outcome<()> {
    let before = resident()?;
    let mut table = Table::new(MANY, requests)?;
    table.clients = Vec::new();
    table.out = Vec::new();
    println!("{}", resident()?.saturating_sub(before) / MANY);
    black_box(&table.machine);
    Ok(())
}

fn memory_of(requests: &str) -> Outcome<String> {
    let output =
        std::process::Command::new(std::env::current_exe()?).args(["memory-of", requests]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    if let [memory_of, requests] = &arguments[..]
        && memory_of == "memory-of"
    {
        return memory(requests.parse()?);
    }
    if let [profile, sessions, new] = &arguments[..]
        && profile == "profile"
    {
        let mut table = Table::new(sessions.parse()?, 1)?;
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..1000 {
            let batch = table.requests(BATCH, MANY, new == "new");
            times.push(table.time_each(batch)?);
        }
        println!("{:.0} ns", median(times));
        return Ok(());
    }
    if named("naive") {
        println!("apply_into against a map of watermarks and answers:");
        for sessions in [4_000, 100_000, 1_000_000] {
            against_naive(sessions)?;
        }
    }
    if named("shapes") {
        shapes()?;
    }
    if named("snapshots") {
        snapshots()?;
    }
    if named("memory") {
        println!("memory a session, of {MANY}:");
        println!("  idle                                     {:>6} bytes", memory_of("0")?);
        println!("  with 1 answer of 17 bytes                {:>6} bytes", memory_of("1")?);
        println!("  with 8 answers of 17 bytes               {:>6} bytes", memory_of("8")?);
    }
    Ok(())
}
