//! What an operator sees of a node and its directory: what it says, what it writes, what a restart costs.

mod support;

use openraft::storage::RaftLogStorage;
use session_openraft::store::Store;
use session_openraft::{Config, Node, OpenError, Stopped, TypeConfig};
use session_runtime::{Limits, SessionId};
use std::fmt::{Debug, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Bank, BankClient, BankCommand, dir};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What the engine says, a line each: the level, the name of a span or the words of an event, and the fields.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    fn note(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Fields)) {
        let mut fields = Fields(String::new());
        record(&mut fields);
        let kind = if metadata.is_span() { metadata.name() } else { "" };
        self.0.lock().unwrap().push(format!("{} {kind}{}", metadata.level(), fields.0));
    }

    fn has(&self, beginning: &str, words: &[&str]) -> bool {
        let said = self.0.lock().unwrap();
        said.iter().any(|line| line.starts_with(beginning) && words.iter().all(|word| line.contains(word)))
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("session_openraft")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(span.metadata(), |fields| span.record(fields));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.note(event.metadata(), |fields| event.record(fields));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn spans_and_warnings_say_what_happens_and_to_what() {
    let said = Said::default();
    let _guard = tracing::subscriber::set_default(said.clone());
    let dir = dir();
    let config = Config { slow_handler: Duration::ZERO, ..Config::new(dir.path()) };
    let node = Node::<Bank>::open_with(config).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    bank.open("ada".to_owned()).await.unwrap();
    node.internal(&BankCommand::Close { account: 1 }).await.unwrap();
    node.configure(Limits::default()).await.unwrap();
    node.upgrade(2).await.unwrap();
    node.snapshot().await.unwrap();
    bank.blow_up().await.unwrap_err();
    node.stopped().await;
    for (beginning, words) in [
        ("INFO open", &["machine=\"Bank\"", &*dir.path().to_string_lossy()][..]),
        ("DEBUG internal", &["command=\"Close\""]),
        ("INFO configure", &[]),
        ("INFO upgrade", &["version=2"]),
        ("INFO snapshot", &[]),
        ("TRACE apply", &["index=3"]),
        ("WARN ", &["takes long", "command=\"Open\"", "index=", "took="]),
        ("ERROR ", &["BlowUp", "as asked", "skip"]),
    ] {
        assert!(said.has(beginning, words), "{beginning} {words:?} in {:#?}", said.0.lock().unwrap());
    }
    drop(bank);
    let Some(Stopped::Halted(halted)) = node.status().stopped else { panic!("it halted") };
    node.shutdown().await;
    drop(node);

    let config = Config { skip: vec![halted.index], ..Config::new(dir.path()) };
    Node::<Bank>::open_with(config).await.unwrap().shutdown().await;
    let index = format!("index={}", halted.index);
    assert!(
        said.has("WARN ", &["is skipped", "command=\"BlowUp\"", &index]),
        "{:#?}",
        said.0.lock().unwrap()
    );
}

#[tokio::test]
async fn a_handler_that_is_quick_is_not_warned_of() {
    let said = Said::default();
    let _guard = tracing::subscriber::set_default(said.clone());
    let node =
        Node::<Bank>::open_with(Config { slow_handler: Duration::from_mins(1), ..Config::in_memory() });
    let node = node.await.unwrap();
    BankClient::new(node.client().await.unwrap()).open("ada".to_owned()).await.unwrap();
    node.shutdown().await;
    assert!(!said.has("WARN", &[]) && !said.has("ERROR", &[]), "{:#?}", said.0.lock().unwrap());
}

/// Two builds of one machine.
mod builds {
    pub(crate) mod old {
        use session_runtime::{State, state_machine};

        #[state_machine]
        pub(crate) enum PollCommand {
            Vote,
        }

        #[derive(Default, State)]
        pub(crate) struct Poll {
            votes: u64,
        }

        #[state_machine(command = PollCommand)]
        impl Poll {
            fn vote(&mut self) -> u64 {
                self.votes = self.votes.saturating_add(1);
                self.votes
            }
        }
    }

    pub(crate) mod new {
        use session_runtime::{State, state_machine};
        use std::sync::atomic::{AtomicU64, Ordering};

        /// How often a handler ran in this process.
        pub(crate) static RAN: AtomicU64 = AtomicU64::new(0);

        #[state_machine]
        pub(crate) enum PollCommand {
            Vote,
            #[since = 2]
            Close,
        }

        #[derive(Default, State)]
        pub(crate) struct Poll {
            votes: u64,
        }

        #[state_machine(command = PollCommand)]
        impl Poll {
            fn vote(&mut self) -> u64 {
                RAN.fetch_add(1, Ordering::Relaxed);
                self.votes = self.votes.saturating_add(1);
                self.votes
            }

            fn close(&mut self) {
                self.votes = 0;
            }
        }
    }
}

use builds::new::PollClient;
use builds::{new, old};

#[tokio::test]
async fn an_old_build_stops_before_an_upgrade_and_a_newer_one_goes_on() {
    let dir = dir();
    let node = Node::<new::Poll>::open(dir.path()).await.unwrap();
    PollClient::new(node.client().await.unwrap()).vote().await.unwrap();
    node.upgrade(2).await.unwrap();
    node.shutdown().await;

    let error = Node::<old::Poll>::open(dir.path()).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Stopped(Stopped::NeedsBuild { .. })), "{error}");
    assert!(error.to_string().contains("newer build"), "{error}");

    let node = Node::<new::Poll>::open(dir.path()).await.unwrap();
    let poll = PollClient::new(node.client().await.unwrap());
    assert_eq!(poll.vote().await, Ok(2));
    poll.close().await.unwrap();
    node.snapshot().await.unwrap();
    node.shutdown().await;
    // Nor does it take the newer one's snapshot.
    let error = Node::<old::Poll>::open(dir.path()).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Machine { .. }), "{error}");
    assert!(error.to_string().ends_with("which this build does not know; run a newer build"), "{error}");
    // What a `main` prints that returns it.
    assert_eq!(format!("{error:?}"), error.to_string());
}

async fn purged(dir: &Path) -> u64 {
    let mut store = Store::<TypeConfig>::open(dir).unwrap();
    let state = store.log.get_log_state().await.unwrap();
    state.last_purged_log_id.map_or(0, |purged| purged.index)
}

#[tokio::test]
async fn a_restart_applies_what_the_snapshot_does_not_have_and_the_rest_is_purged() {
    const CALLS: u64 = 2_000;
    let dir = dir();
    let node = Node::<new::Poll>::open(dir.path()).await.unwrap();
    let client = node.client().await.unwrap();
    let poll = PollClient::new(&client);
    let vote = async |times| {
        for _ in 0..times {
            poll.vote().await.unwrap();
        }
    };
    vote(CALLS).await;
    let covered = node.snapshot().await.unwrap();
    assert!(covered >= CALLS);
    vote(10).await;
    drop(client);
    node.shutdown().await;
    assert!(purged(dir.path()).await >= CALLS, "what the snapshot covers is still in the log");

    let before = new::RAN.load(Ordering::Relaxed);
    let node = Node::<new::Poll>::open(dir.path()).await.unwrap();
    let ran = new::RAN.load(Ordering::Relaxed) - before;
    assert!((10..100).contains(&ran), "{ran} commands were applied again");
    node.shutdown().await;
}

/// A machine whose state is encoded only when the test lets it.
mod gated {
    use serde::{Deserialize, Serialize};
    use session_runtime::{Deterministic, State, state_machine};
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    #[derive(PartialEq)]
    pub(crate) enum Gate {
        Open,
        Shut,
        /// Nobody opened it in time.
        Forced,
    }

    pub(crate) static GATE: Mutex<Gate> = Mutex::new(Gate::Open);
    pub(crate) static CHANGED: Condvar = Condvar::new();

    #[state_machine]
    pub(crate) enum GatedCommand {
        Count,
    }

    #[derive(Default, State)]
    pub(crate) struct Gated {
        #[state(shared)]
        counted: Counted,
    }

    #[state_machine(command = GatedCommand)]
    impl Gated {
        fn count(&mut self) {
            self.counted.0 = self.counted.0.saturating_add(1);
        }
    }

    #[derive(Clone, Default, Deserialize, Deterministic)]
    struct Counted(u64);

    impl Serialize for Counted {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let gate = GATE.lock().unwrap();
            let shut = |gate: &mut Gate| *gate == Gate::Shut;
            let (mut gate, waited) = CHANGED.wait_timeout_while(gate, Duration::from_secs(10), shut).unwrap();
            if waited.timed_out() {
                *gate = Gate::Forced;
            }
            serializer.serialize_newtype_struct("Counted", &self.0)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_go_on_while_a_snapshot_is_encoded() {
    use gated::{CHANGED, GATE, Gate, Gated, GatedClient};

    let dir = dir();
    let node = Arc::new(Node::<Gated>::open(dir.path()).await.unwrap());
    let gated = GatedClient::new(node.client().await.unwrap());
    *GATE.lock().unwrap() = Gate::Shut;
    let snapshot = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.snapshot().await }
    });
    let before = node.status().snapshot;
    for _ in 0..50 {
        gated.count().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(node.status().snapshot, before, "it was not encoded yet");
    let in_time = std::mem::replace(&mut *GATE.lock().unwrap(), Gate::Open) == Gate::Shut;
    assert!(in_time, "commands waited for the encoding");
    CHANGED.notify_all();
    assert!(snapshot.await.unwrap().unwrap() > before);
}

#[tokio::test]
async fn an_idle_node_appends_nothing() {
    let dir = dir();
    let config = Config { snapshot_every: 0, ..Config::new(dir.path()) };
    let node = Node::<Bank>::open_with(config).await.unwrap();
    let client = node.client().await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = (node.status().last_applied, names(dir.path()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((node.status().last_applied, names(dir.path())), before);
    drop(client);
    node.shutdown().await;
}

/// The files of a directory, and when they were written.
fn names(dir: &Path) -> Vec<(String, std::time::SystemTime)> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| {
        let file = file.unwrap();
        (file.file_name().into_string().unwrap(), file.metadata().unwrap().modified().unwrap())
    });
    let mut files: Vec<_> = files.filter(|(name, _)| name.starts_with("snapshot")).collect();
    files.sort();
    files
}

#[tokio::test]
async fn session_ids_are_of_their_place_and_random() {
    static LOWER: AtomicU64 = AtomicU64::new(0);
    for _ in 0..3 {
        let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
        let (one, two) = (node.client().await.unwrap(), node.client().await.unwrap());
        let (SessionId(one), SessionId(two)) = (one.session().unwrap(), two.session().unwrap());
        assert!(one >> 64 < two >> 64 && two >> 64 <= u128::from(node.status().last_applied));
        for id in [one, two] {
            let lower = u64::try_from(id & u128::from(u64::MAX)).unwrap();
            assert_ne!(LOWER.swap(lower, Ordering::Relaxed), lower);
            assert_ne!(lower, 0);
        }
        node.shutdown().await;
    }
}
