//! Requests on their way into the log: those that come together share one place in it, and so one pass through
//! the engine and one record of the store.

use crate::error::NodeError;
use crate::service::{Service, Written, lock};
use crate::types::Proposal;
use bytes::Bytes;
use session_runtime::StateMachine;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Entries that take more bytes together than this do not wait for others.
const MAX_SHARED: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Proposals {
    pub(crate) waiting: Mutex<Waiting>,
    /// How many proposals were applied.
    applied: AtomicU64,
    /// Wakes the task that proposes what waits.
    wake: Notify,
}

/// The encoded entries that wait for the next place.
#[derive(Default)]
pub(crate) struct Waiting {
    entries: Vec<Bytes>,
    bytes: usize,
    /// How many proposals the engine was given.
    given: u64,
}

impl Proposals {
    /// All proposals of before are applied.
    pub(crate) fn begin(&self) {
        lock(&self.waiting).given = self.applied.load(Ordering::Acquire);
    }

    /// One more proposal is applied. To be called before anybody learns of it, so that a caller who is alone finds the
    /// engine idle.
    pub(crate) fn applied(&self) {
        self.applied.fetch_add(1, Ordering::Release);
    }

    /// Lets the task that proposes see that the node has stopped.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}

impl<M: StateMachine + Send + Sync + 'static> Service<M> {
    /// Gives an encoded entry a place in the log. If the engine has nothing to do it goes at once; else it waits for
    /// those who are about to come. `Some` if it went alone: openraft wakes such a caller last, and waking it earlier
    /// would only start a second thread.
    pub(crate) fn share(&self, entry: Bytes) -> Result<Option<Written>, NodeError> {
        let mut waiting = lock(&self.proposals.waiting);
        let idle = waiting.given <= self.proposals.applied.load(Ordering::Acquire);
        waiting.bytes = waiting.bytes.saturating_add(entry.len());
        waiting.entries.push(entry);
        if idle || waiting.bytes > MAX_SHARED {
            return self.give_waiting(&mut waiting).map(|written| written.filter(|_| idle));
        }
        let first = waiting.entries.len() == 1;
        drop(waiting);
        if first {
            self.proposals.wake.notify_one();
        }
        Ok(None)
    }

    /// Proposes all that waits.
    fn give_waiting(&self, waiting: &mut Waiting) -> Result<Option<Written>, NodeError> {
        if waiting.entries.is_empty() {
            return Ok(None);
        }
        let proposal = Proposal::of(&waiting.entries);
        waiting.entries.clear();
        waiting.bytes = 0;
        waiting.given = waiting.given.saturating_add(1);
        // Clients are told by the machine, or when the engine ends; what another leader must append is sent again.
        self.give(proposal).map(Some)
    }

    /// Proposes an encoded entry alone, behind all that came before it.
    pub(crate) fn propose(&self, entry: Bytes) -> Result<Written, NodeError> {
        let mut waiting = lock(&self.proposals.waiting);
        self.give_waiting(&mut waiting)?;
        waiting.given = waiting.given.saturating_add(1);
        self.give(Proposal::from(entry))
    }
}

/// Proposes what waits, until the node stops.
pub(crate) async fn keep<M: StateMachine + Send + Sync + 'static>(service: Arc<Service<M>>) {
    loop {
        service.proposals.wake.notified().await;
        if service.stopped().is_some() {
            return;
        }
        // Whoever is ready to run may have something to add.
        others_first().await;
        if let Err(error) = service.give_waiting(&mut lock(&service.proposals.waiting)) {
            tracing::debug!("what waited for a place in the log has to be sent again: {error}");
        }
    }
}

/// Goes behind all other tasks that are ready on this thread. tokio's own `yield_now` also asks the operating system
/// whether anything happened, which costs more than what is won here.
async fn others_first() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return std::task::Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
