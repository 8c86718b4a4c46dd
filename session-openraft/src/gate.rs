//! The leader's gate, as the log sees it: it is shown every append, and reads them when a copy of a request comes.

use crate::service::lock;
use crate::types::{Proposal, TypeConfig};
use openraft::EntryPayload;
use session_runtime::admission::{Admission, Admit};
use session_runtime::{Entry, RaftAction, SessionKey};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Copies are rare, so an append costs no more than keeping it until it is applied.
#[derive(Default)]
pub(crate) struct Gate(Mutex<InLog>);

#[derive(Default)]
struct InLog {
    /// What was appended in this term and is not applied.
    appended: VecDeque<Appended>,
    /// The term of the last append.
    term: u64,
    admission: Admission<SessionKey>,
    /// How many requests were read, which is how the admission counts them.
    read: u64,
}

struct Appended {
    index: u64,
    proposal: Proposal,
    /// The count of the last request in it, once it is read.
    read: Option<u64>,
}

impl Gate {
    /// An entry stands in the log, and is not applied yet.
    pub(crate) fn appended(&self, entry: &openraft::Entry<TypeConfig>) {
        let (index, term) = (entry.log_id.index, entry.log_id.leader_id.term);
        let mut log = lock(&self.0);
        if term > log.term {
            log.term = term;
            log.appended.clear();
        }
        // Whatever stood there before is no longer in the log.
        while log.appended.pop_back_if(|last| last.index >= index).is_some() {}
        if let EntryPayload::Normal(proposal) = &entry.payload {
            log.appended.push_back(Appended { index, proposal: proposal.clone(), read: None });
        }
    }

    /// All up to an index is applied.
    pub(crate) fn applied(&self, index: u64) {
        let mut log = lock(&self.0);
        while let Some(appended) = log.appended.pop_front_if(|first| first.index <= index) {
            if let Some(read) = appended.read {
                log.admission.applied(read);
            }
        }
    }

    /// What is to be done with a request that may be a copy, given its answer if the applied state has one.
    pub(crate) fn admit<A>(&self, key: &SessionKey, answer: Option<A>) -> Admit<A> {
        let mut log = lock(&self.0);
        let InLog { appended, term, admission, read } = &mut *log;
        for appended in appended.iter_mut().filter(|appended| appended.read.is_none()) {
            for entry in appended.proposal.entries() {
                if let Ok(Entry {
                    action: RaftAction::ClientRequest { session, request, payload, .. }, ..
                }) = Entry::decode(entry)
                {
                    *read = read.saturating_add(1);
                    admission.appended(SessionKey::new(session, request, &payload), *term, *read);
                }
            }
            appended.read = Some(*read);
        }
        admission.admit(*term, key, answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use openraft::{CommittedLeaderId, LogId};
    use session_runtime::{RequestId, ServerRequestId, SessionId, Timestamp};

    const SESSION: SessionId = SessionId(7);

    fn key(request: u64) -> SessionKey {
        SessionKey::new(SESSION, RequestId(request), b"payload")
    }

    fn append(gate: &Gate, term: u64, index: u64, requests: &[u64]) {
        let entry = |request: &u64| {
            let action = RaftAction::ClientRequest {
                session: SESSION,
                request: RequestId(*request),
                lowest_pending: RequestId(1),
                acked: ServerRequestId(0),
                payload: Bytes::from_static(b"payload"),
            };
            Entry { time: Timestamp(0), action }.encode()
        };
        let entries: Vec<_> = requests.iter().map(entry).collect();
        let log_id = LogId::new(CommittedLeaderId::new(term, 1), index);
        gate.appended(&openraft::Entry { log_id, payload: EntryPayload::Normal(Proposal::of(&entries)) });
    }

    fn waits(gate: &Gate, request: u64) -> bool {
        matches!(gate.admit::<()>(&key(request), None), Admit::InFlight { .. })
    }

    #[test]
    fn a_copy_of_any_request_at_a_place_waits_until_it_is_applied() {
        let gate = Gate::default();
        append(&gate, 1, 5, &[1, 2, 3]);
        append(&gate, 1, 6, &[4]);
        for request in 1..=4 {
            assert!(waits(&gate, request), "{request}");
        }
        append(&gate, 1, 7, &[5]);
        gate.applied(5);
        for (request, expected) in [(1, false), (2, false), (3, false), (4, true), (5, true), (6, false)] {
            assert_eq!(waits(&gate, request), expected, "{request}");
        }
        gate.applied(7);
        assert!((1..=6).all(|request| !waits(&gate, request)));
        assert_eq!(lock(&gate.0).admission.len(), 0);
    }

    #[test]
    fn what_is_applied_before_a_copy_comes_is_never_read() {
        let gate = Gate::default();
        append(&gate, 1, 5, &[1, 2]);
        gate.applied(5);
        assert!(!waits(&gate, 1));
        assert_eq!(lock(&gate.0).read, 0);
    }

    #[test]
    fn an_answer_is_given_whatever_the_log_holds() {
        let gate = Gate::default();
        append(&gate, 1, 5, &[1]);
        assert_eq!(gate.admit(&key(1), Some("answer")), Admit::Answered("answer"));
    }

    #[test]
    fn a_new_term_drops_all_whether_it_was_read_or_not() {
        for read in [false, true] {
            let gate = Gate::default();
            append(&gate, 1, 5, &[1]);
            assert!(!read || waits(&gate, 1));
            append(&gate, 2, 6, &[2]);
            assert!(!waits(&gate, 1), "{read}");
            assert!(waits(&gate, 2), "{read}");
        }
    }
}
