//! The power goes at every step of a whole node, on the path that ships: every answer that a client was given is found
//! again, applied exactly once.

#[path = "../../tests/common/disk.rs"]
#[allow(dead_code)] // The tests of the store alone need more of it.
mod disk;
#[path = "../../tests/common/ledger.rs"]
mod ledger;

use crate::store::{self, Disk};
use crate::{Node, NodeClient, OpenError, Stopped, StoreError};
use disk::{Fault, Survives, TestDisk};
use ledger::{Ledger, LedgerClient};
use session_runtime::codec;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Failure = Box<dyn Error + Send + Sync>;

/// The disks that nodes are about to open, by the name of the directory in whose place they are.
static DISKS: Mutex<BTreeMap<PathBuf, TestDisk>> = Mutex::new(BTreeMap::new());

/// The disk that a test put in the place of a directory.
pub(super) fn disk_in_place_of(dir: &Path) -> Option<Arc<dyn Disk>> {
    lock(&DISKS).remove(dir).map(|disk| Arc::new(disk) as Arc<dyn Disk>)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn open(disk: &TestDisk) -> Result<Node<Ledger>, Failure> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let dir = PathBuf::from(format!("test disk {}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    lock(&DISKS).insert(dir.clone(), disk.clone());
    Ok(Node::open(dir).await?)
}

/// The caller that keeps its session where no power cut takes it.
const SAVING: u64 = 0;
/// A caller that comes after the cut.
const AFTERWARDS: u64 = 9;

/// What is known outside of the node.
#[derive(Default)]
struct Known {
    /// The last number of each caller that was answered.
    answered: Mutex<BTreeMap<u64, u64>>,
    /// The number that the saving caller was about to enter, and its session.
    saved: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Known {
    fn copy(&self) -> Self {
        let (answered, saved) = (lock(&self.answered).clone(), lock(&self.saved).clone());
        Self { answered: Mutex::new(answered), saved: Mutex::new(saved) }
    }

    async fn enter(&self, client: &NodeClient<Ledger>, caller: u64, number: u64) -> Result<(), Failure> {
        let answer = if caller == SAVING {
            let saving = client.saving(|session: &[u8]| {
                *lock(&self.saved) = Some((number, session.to_vec()));
                Ok::<_, std::io::Error>(())
            });
            LedgerClient::new(saving).enter(caller, number).await?
        } else {
            LedgerClient::new(client).enter(caller, number).await?
        };
        assert_eq!(answer, number, "caller {caller} was told something else");
        lock(&self.answered).insert(caller, number);
        Ok(())
    }

    /// What a node does, until the power goes: calls one at a time and together, snapshots and purges between them.
    async fn run(&self, disk: &TestDisk) -> Result<(), Failure> {
        let node = open(disk).await?;
        let (one, two, three) = (node.client().await?, node.client().await?, node.client().await?);
        for number in 1..=6 {
            let together = tokio::join!(
                self.enter(&one, SAVING, number),
                self.enter(&two, 1, number),
                self.enter(&three, 2, number)
            );
            together.0.and(together.1).and(together.2)?;
            self.enter(&two, 3, number).await?;
            if number % 3 == 0 {
                node.snapshot().await?;
            }
        }
        drop((one, two, three));
        node.shutdown().await;
        Ok(())
    }

    /// Opens what the cut left: all that was answered is there, and at most the command that was under way besides.
    async fn check(&self, disk: &TestDisk) -> Result<(), Failure> {
        let node = open(disk).await?;
        let client = node.client().await?;
        let (held, wrong) = LedgerClient::new(&client).report().await?;
        assert_eq!(wrong, 0, "commands were applied twice or out of turn");
        for caller in 0..=3 {
            let answered = lock(&self.answered).get(&caller).copied().unwrap_or(0);
            let held = held.get(&caller).copied().unwrap_or(0);
            assert!(held >= answered, "caller {caller} was answered {answered}, and {held} is there");
            assert!(held <= answered + 1, "caller {caller} was answered {answered}, and {held} is there");
        }
        // The command under way, which may be applied or not, is sent again: it is applied once.
        let saved = lock(&self.saved).take();
        if let Some((number, session)) = saved {
            let saving = node.resume(&session).await?;
            let (_, answer) = saving.recovered().await.ok_or("the session has forgotten its command")?;
            assert_eq!(codec::decode::<u64>(&answer?.payload)?, number, "the command under way");
            self.enter(&saving, SAVING, number + 1).await?;
        }
        self.enter(&client, AFTERWARDS, 1).await?;
        let (_, wrong) = LedgerClient::new(&client).report().await?;
        assert_eq!(wrong, 0, "a command was applied again");
        drop(client);
        node.shutdown().await;
        Ok(())
    }
}

/// Runs to the end, and no longer than a stuck test would.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ended = tokio::time::timeout(Duration::from_mins(1), future).await;
        ended.expect("every call ends, whatever the disk does")
    })
}

/// One run with a cut at a step, and what is found after it. False if the run ended before the step.
fn cut_at(step: u64) -> bool {
    let disk = TestDisk::new();
    disk.fault(step, Fault::HangsAndCut);
    let known = Known::default();
    let result = block_on(known.run(&disk));
    if !disk.had_fault() {
        result.expect("a run without a cut");
    }
    let others = [Survives::Everything, Survives::Beginning(step * 100), Survives::Some(step * 100)];
    let other = others[usize::try_from(step % 3).expect("a small number")];
    for survives in [Survives::Nothing, other] {
        block_on(known.copy().check(&disk.after_cut(survives)))
            .unwrap_or_else(|error| panic!("step {step}, {survives:?}: {error}"));
    }
    disk.had_fault()
}

#[test]
fn a_power_cut_at_any_step_takes_no_answer_back() {
    let steps = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if !cut_at(steps.fetch_add(1, Ordering::Relaxed)) {
                        ended.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let steps = steps.into_inner();
    println!("{steps} steps");
    assert!(steps > 150, "only {steps} steps: the node writes less than it should");
}

/// The disk is full at a step. False if the run ended before it.
fn full_at(step: u64) -> bool {
    let disk = TestDisk::new();
    disk.fault(step, Fault::Fails(ErrorKind::StorageFull));
    let run = async {
        let node = match open(&disk).await {
            Ok(node) => node,
            Err(error) => {
                let error = error.downcast::<OpenError>()?;
                assert!(matches!(*error, OpenError::Store(StoreError::Full { .. })), "step {step}: {error}");
                return Ok(());
            }
        };
        let calls = async {
            let client = node.client().await?;
            for number in 1..=3 {
                Known::default().enter(&client, AFTERWARDS, number).await?;
                node.snapshot().await?;
            }
            Ok::<_, Failure>(())
        };
        if let Err(error) = calls.await {
            assert!(error.to_string().contains("the disk is full"), "step {step}: {error}");
            let stopped = node.status().stopped;
            let full = matches!(stopped, None | Some(Stopped::Store(StoreError::Full { .. })));
            assert!(full, "step {step}: {stopped:?}");
        }
        node.shutdown().await;
        Ok(())
    };
    block_on(run).unwrap_or_else(|error| panic!("step {step}: {error}"));
    disk.had_fault()
}

#[test]
fn a_full_disk_at_any_step_is_said_to_everybody() {
    let mut steps = 0;
    while full_at(steps) {
        steps += 1;
    }
    assert!(steps > 50, "only {steps} steps: the node writes less than it should");
}
