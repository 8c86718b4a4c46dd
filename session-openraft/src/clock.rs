//! Cluster time: the time of the last applied entry plus this process's own monotonic elapsed time. Never the wall
//! clock, whose one jump would expire everybody and then nobody.

use session_runtime::Timestamp;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Clock {
    /// When this process started to count, for the timers of its clients.
    started: Instant,
    /// The log's time when this node began to lead, and when that was.
    leads: Mutex<(Timestamp, Instant)>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let started = Instant::now();
        Self { started, leads: Mutex::new((Timestamp(0), started)) }
    }

    /// This node begins to lead: its time goes on where the log's has come to.
    pub(crate) fn lead_from(&self, time: Timestamp) {
        *self.leads.lock().unwrap_or_else(PoisonError::into_inner) = (time, Instant::now());
    }

    /// The time for the next entry.
    pub(crate) fn now(&self) -> Timestamp {
        let (time, since) = *self.leads.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp(time.0.saturating_add(elapsed))
    }

    /// The time since this process started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}
