//! Cluster time: the time of the last applied entry plus this process's own monotonic elapsed time. Never the wall
//! clock, whose one jump would expire everybody and then nobody.

use session_runtime::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Clock {
    started: Instant,
    /// What the log's time was ahead of this process's when this node began to lead, in milliseconds. It may have
    /// been behind, so it wraps.
    ahead: AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), ahead: AtomicU64::new(0) }
    }

    /// This node begins to lead: its time goes on where the log's has come to.
    pub(crate) fn lead_from(&self, time: Timestamp) {
        self.ahead.store(time.0.wrapping_sub(milliseconds(self.elapsed())), Ordering::Relaxed);
    }

    /// The time for the next entry.
    pub(crate) fn now(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::Relaxed);
        Timestamp(ahead.wrapping_add(milliseconds(self.elapsed())))
    }

    /// A moment, counted as [`elapsed`](Self::elapsed) counts.
    pub(crate) fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.started)
    }

    /// The time since this process started to count.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_counted_from_the_start() {
        let clock = Clock::new();
        let before = clock.elapsed();
        let moment = clock.at(Instant::now() + Duration::from_secs(1));
        let second = Duration::from_secs(1);
        assert!(before + second <= moment && moment <= clock.elapsed() + second, "{moment:?}");
    }

    #[test]
    fn a_leaders_time_goes_on_where_the_logs_has_come_to() {
        let day = Duration::from_hours(24);
        let Some(yesterday) = Instant::now().checked_sub(day) else { return };
        for log in [0, 5_000, milliseconds(day) * 2] {
            // A process that ran for a day before it began to lead.
            let clock = Clock { started: yesterday, ahead: AtomicU64::new(0) };
            clock.lead_from(Timestamp(log));
            let now = clock.now().0;
            assert!((log..log + 10_000).contains(&now), "{now} behind {log}");
        }
    }
}
