//! Which sessions have server requests to be sent again, and in which order.

use super::Sessions;
use crate::action::ServerAction;
use crate::identity::{SessionId, Timestamp};
use crate::session::Session;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

impl Sessions {
    /// Whether any server request was last sent before a moment.
    pub(crate) fn has_due(&self, before: Timestamp) -> bool {
        self.by_sent.first().is_some_and(|(oldest, _)| *oldest < before)
    }

    /// Marks the server requests last sent before a moment as sent now, at most `limit` (0: all), and returns
    /// them: first the session whose first due request has waited longest.
    ///
    /// That request need not be the session's oldest, because a limited retry may have sent those before it again and
    /// not those behind it. But no session's first due request is older than its oldest, so the order by the oldest
    /// says when no better session can follow.
    pub(crate) fn retry(
        &mut self,
        before: Timestamp,
        limit: u32,
        now: Timestamp,
        out: &mut Vec<ServerAction>,
    ) {
        let mut left = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let mut waiting: BinaryHeap<Reverse<(Timestamp, SessionId)>> = BinaryHeap::new();
        // Not in the order while they are looked at: with a moment in the future, what was sent now is due again.
        let mut taken = Vec::new();
        while left > 0 {
            let next = self.by_sent.first().copied().filter(|(oldest, _)| *oldest < before);
            match (waiting.peek(), next) {
                (Some(Reverse(first)), next) if next.is_none_or(|next| *first < next) => {
                    left = left.saturating_sub(self.resend(first.1, before, left, now, out));
                    waiting.pop();
                }
                (_, Some(next)) => {
                    self.by_sent.remove(&next);
                    taken.push(next.1);
                    let first_due = self.get(next.1).and_then(|session| session.first_due(before));
                    waiting.extend(first_due.map(|request| Reverse((request.last_sent_at, next.1))));
                }
                (_, None) => break,
            }
        }
        for id in taken {
            let oldest = self.get(id).and_then(Session::oldest_sent);
            self.by_sent.extend(oldest.map(|oldest| (oldest, id)));
        }
    }

    /// Sends again what is due of one session, at most `limit`, and says how many that are.
    fn resend(
        &mut self,
        id: SessionId,
        before: Timestamp,
        limit: usize,
        now: Timestamp,
        out: &mut Vec<ServerAction>,
    ) -> usize {
        let sent_before = out.len();
        let place = self.find(id);
        if let Some(open) = place.and_then(|place| self.open.get_mut(place)) {
            open.session.resend(before, limit, now, |request| {
                out.push(ServerAction::SendServerRequest {
                    session: id,
                    request: request.id,
                    payload: request.payload.clone(),
                });
            });
        }
        out.len().saturating_sub(sent_before)
    }
}
