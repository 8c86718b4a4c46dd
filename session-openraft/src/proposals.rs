//! Requests on their way into the log: those that come together share one place in it, and so one pass through
//! the engine and one record of the store.

use crate::error::NodeError;
use crate::service::{Service, lock};
use crate::types::{Proposal, Told};
use bytes::Bytes;
use session_runtime::StateMachine;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::task::Id;

/// Entries that take more bytes together than this do not wait for others.
const MAX_SHARED: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Proposals {
    waiting: Mutex<Waiting>,
    /// How many calls have begun and not ended.
    calls: AtomicUsize,
    /// Whose call was the last that was alone.
    last_alone: Mutex<Option<Id>>,
    /// Wakes the task that proposes what waits.
    wake: Notify,
}

/// The encoded entries that wait for the next place.
#[derive(Default)]
struct Waiting {
    entries: Vec<Bytes>,
    bytes: usize,
}

impl Proposals {
    /// A call begins, and is under way until what this gives is dropped.
    pub(crate) fn call(&self) -> UnderWay<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Whether the caller seems to be the only one: no other call is under way, and the last one that was alone was
    /// the same task's. Where tasks take turns they are better off together.
    fn alone(&self) -> bool {
        self.calls.load(Ordering::Relaxed) <= 1 && {
            let caller = tokio::task::try_id();
            std::mem::replace(&mut *lock(&self.last_alone), caller) == caller
        }
    }

    /// Lets the task that proposes see that the node has stopped.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}

/// A call that has begun and not ended.
pub(crate) struct UnderWay<'a>(&'a Proposals);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<M: StateMachine + Send + Sync + 'static> Service<M> {
    /// Gives an encoded entry a place in the log. A caller who is alone goes at once, and runs the engine: there may be
    /// an answer when this returns. Any other waits for those who are about to come.
    pub(crate) fn share(&self, entry: Bytes) -> Result<(), NodeError> {
        if self.proposals.alone() {
            let give = || {
                let mut waiting = lock(&self.proposals.waiting);
                waiting.push(entry);
                self.give_waiting(&mut waiting)
            };
            return match self.engine_tasks() {
                Some(tasks) => tasks.run_after(give),
                None => give(),
            };
        }
        let mut waiting = lock(&self.proposals.waiting);
        waiting.push(entry);
        if waiting.bytes > MAX_SHARED {
            return self.give_waiting(&mut waiting);
        }
        if waiting.entries.len() == 1 {
            drop(waiting);
            self.proposals.wake.notify_one();
        }
        Ok(())
    }

    /// Proposes all that waits.
    fn give_waiting(&self, waiting: &mut Waiting) -> Result<(), NodeError> {
        if waiting.entries.is_empty() {
            return Ok(());
        }
        let proposal = Proposal::of(&waiting.entries);
        waiting.entries.clear();
        waiting.bytes = 0;
        // Clients are told by the machine, or when the engine ends; what another leader must append is sent again.
        self.give(proposal).map(drop)
    }

    /// Proposes an encoded entry alone, behind all that came before it.
    pub(crate) fn propose(&self, entry: Bytes) -> Result<Option<Told>, NodeError> {
        let mut waiting = lock(&self.proposals.waiting);
        self.give_waiting(&mut waiting)?;
        self.give(Proposal::from(entry).awaited())
    }
}

impl Waiting {
    fn push(&mut self, entry: Bytes) {
        self.bytes = self.bytes.saturating_add(entry.len());
        self.entries.push(entry);
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
        let give = || service.give_waiting(&mut lock(&service.proposals.waiting));
        let given = service.engine_tasks().map_or_else(give, |tasks| tasks.wake_by(give));
        if let Err(error) = given {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a call of this task is alone.
    fn call(proposals: &Proposals) -> bool {
        let _under_way = proposals.call();
        proposals.alone()
    }

    /// The same of calls of a task of their own.
    async fn elsewhere<const N: usize>(proposals: &Arc<Proposals>) -> [bool; N] {
        let proposals = Arc::clone(proposals);
        tokio::spawn(async move { [(); N].map(|()| call(&proposals)) }).await.unwrap()
    }

    #[tokio::test]
    async fn a_caller_is_alone_while_no_other_comes_in_between() {
        let proposals = Arc::default();
        assert_eq!(elsewhere(&proposals).await, [false, true, true]);
        // These take turns, and no two calls are under way at once.
        for _ in 0..3 {
            assert_eq!(elsewhere(&proposals).await, [false]);
        }
    }

    #[tokio::test]
    async fn a_caller_is_not_alone_while_another_call_is_under_way() {
        let proposals = Arc::default();
        let other = Proposals::call(&proposals);
        assert_eq!(elsewhere(&proposals).await, [false, false]);
        drop(other);
        assert_eq!(elsewhere(&proposals).await, [false, true]);
    }
}
