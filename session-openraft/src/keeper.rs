//! What a leader does by itself: signs of life in one entry, ticks when a session is due, retries, snapshots.

use crate::error::{NodeError, Stopped};
use crate::service::{Service, lock};
use crate::store::LogStore;
use crate::types::TypeConfig;
use openraft::BasicNode;
use openraft::metrics::RaftServerMetrics;
use session_runtime::{RaftAction, StateMachine};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often it looks. Looking costs nothing while nothing is due.
const PERIOD: Duration = Duration::from_millis(50);

/// A node for as long as it is kept. A task is dropped with its runtime, and then nothing of the node runs any more: nobody
/// may wait for it.
pub(crate) struct EndsWithRuntime<M: StateMachine + Send + Sync + 'static>(pub(crate) Arc<Service<M>>);

impl<M: StateMachine + Send + Sync + 'static> Drop for EndsWithRuntime<M> {
    fn drop(&mut self) {
        self.0.stop(&Stopped::Shutdown);
    }
}

/// Looks after the log until the node stops.
pub(crate) async fn keep<M: StateMachine + Send + Sync + 'static>(
    ends: EndsWithRuntime<M>,
    log: LogStore<TypeConfig>,
    mut engine: watch::Receiver<RaftServerMetrics<u64, BasicNode>>,
) {
    let service = Arc::clone(&ends.0);
    let mut keeper = Keeper { alive_at: Instant::now(), tried: 0, asked: 0, log, service };
    loop {
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            _ = keeper.service.has_stopped() => return,
            // It says nothing of these any more once its task has ended, and then nobody may wait for it.
            changed = engine.changed() => if changed.is_err() {
                return keeper.service.ended();
            },
        }
        if let Err(error) = keeper.look().await {
            tracing::debug!("what was due has to wait: {error}");
        }
    }
}

struct Keeper<M> {
    service: Arc<Service<M>>,
    log: LogStore<TypeConfig>,
    /// When signs of life last became an entry.
    alive_at: Instant,
    /// How many snapshots had been tried when the last one was asked for.
    tried: u64,
    /// The entry at which it was asked for.
    asked: u64,
}

impl<M: StateMachine + Send + Sync + 'static> Keeper<M> {
    async fn look(&mut self) -> Result<(), NodeError> {
        let service = &self.service;
        if self.alive_at.elapsed() >= service.config.keep_alive {
            self.alive_at = Instant::now();
            let sessions = service.take_alive();
            if !sessions.is_empty() {
                service.write(RaftAction::KeepAlive { sessions }).await?;
            }
        }
        let now = service.clock.now();
        let due = service.machine().expiry_due();
        if due.is_some_and(|due| due <= now) {
            service.write(RaftAction::Tick).await?;
        }
        let retry = {
            let machine = service.machine();
            lock(&service.retries).poll(now, |before| machine.has_pending_requests(before))
        };
        if let Some(retry) = retry {
            service.write(retry).await?;
        }
        self.look_after_snapshots().await
    }

    async fn look_after_snapshots(&mut self) -> Result<(), NodeError> {
        let service = &self.service;
        let state = service.snapshots.borrow().clone();
        if state.tried != self.tried {
            self.tried = state.tried;
            if state.problem.is_none() && self.log.drop_skips_through(state.index).await.is_err() {
                tracing::warn!("skipped entries that a snapshot covers are still on disk");
            }
        }
        let applied = service.machine().last_applied();
        if applied.saturating_sub(self.asked.max(state.index)) >= service.config.snapshot_every.max(1) {
            self.asked = applied;
            service.raft()?.trigger().snapshot().await.ok();
        }
        Ok(())
    }
}
