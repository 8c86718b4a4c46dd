//! One machine under each of the three guarantees: what they share is the same. The names are referred to in
//! `book/src/reference/rules.md`.

mod support;

use session_runtime::ids::{Id, IdAction, IdOutcome, IdStateMachine};
use session_runtime::serials::{SerialAction, SerialKey, SerialOutcome, SerialStateMachine};
use session_runtime::{
    Command, RaftAction, RequestError, RequestId, Response, ServerAction, ServerRequestId, SessionId,
    SessionStateMachine, Snapshot, SnapshotError, Timestamp,
};
use support::*;

const A: SessionId = SessionId(0xa);

/// The same machine, three times.
struct Three {
    sessions: SessionStateMachine<Desk>,
    serials: SerialStateMachine<Desk>,
    ids: IdStateMachine<Desk>,
    index: u64,
}

impl Three {
    /// All at index 1, where the session is opened. That writes into the journal, so it is cleared again.
    fn new() -> Self {
        let mut three = Self {
            sessions: SessionStateMachine::new(Desk::default()),
            serials: SerialStateMachine::new(Desk::default()),
            ids: IdStateMachine::new(Desk::default()),
            index: 2,
        };
        three.sessions.apply(1, Timestamp(0), create(A)).unwrap();
        three.sessions.apply(2, Timestamp(0), internal(DeskCommand::Purge)).unwrap();
        three
    }

    /// A client's command under each: what it is answered, and what a copy of it is answered.
    fn run(&mut self, command: &DeskCommand) -> [Result<Response, RequestError>; 2] {
        let number = self.index;
        let request = RaftAction::ClientRequest {
            session: A,
            request: RequestId(number),
            lowest_pending: RequestId(1),
            acked: ServerRequestId(0),
            payload: command.encode(),
        };
        let key = Some(SerialKey { client: "ann".into(), serial: number });
        let serial = SerialAction::Command { key, payload: command.encode() };
        let id = Id::of_request(&number.to_le_bytes());
        let by_id = IdAction::Request { id, acked: None, payload: command.encode() };
        [false, true].map(|copy| {
            self.index += 1;
            let (index, time) = (self.index, Timestamp(self.index * 10));
            let out = self.sessions.apply(index, time, request.clone()).unwrap();
            let serials = self.serials.apply(index, time, serial.clone()).unwrap();
            let ids = self.ids.apply(index, time, by_id.clone()).unwrap();
            let expected = match &out[0] {
                ServerAction::SendResponse { response, .. } => Ok(response.clone()),
                ServerAction::SendRequestError { error, .. } => Err(*error),
                other => panic!("{other:?}"),
            };
            match (&expected, copy) {
                (Ok(response), false) => {
                    assert_eq!(serials, SerialOutcome::Applied(response.clone()));
                    assert_eq!(ids, IdOutcome::Executed(response.clone()));
                }
                (Ok(response), true) => {
                    assert_eq!(serials, SerialOutcome::Duplicate);
                    assert_eq!(ids, IdOutcome::Duplicate(response.clone()));
                }
                (Err(_), _) => {
                    assert_eq!(serials, if copy { SerialOutcome::Duplicate } else { SerialOutcome::Invalid });
                    assert_eq!(ids, IdOutcome::Invalid);
                }
            }
            expected
        })
    }

    fn snapshots(&self) -> [Snapshot; 3] {
        [self.sessions.snapshot().unwrap(), self.serials.snapshot().unwrap(), self.ids.snapshot().unwrap()]
    }
}

#[test]
fn one_machine_runs_alike_under_each_guarantee() {
    let mut three = Three::new();
    for command in [
        DeskCommand::Add { amount: 7 },
        DeskCommand::Take { amount: 9 },
        DeskCommand::Take { amount: 2 },
        DeskCommand::Roll,
        DeskCommand::Count { word: "one".to_owned() },
        DeskCommand::Purge,
        DeskCommand::Double,
    ] {
        let [first, copy] = three.run(&command);
        assert_eq!(first, copy, "{command:?}");
    }
    assert_eq!(three.sessions.machine(), three.serials.machine());
    assert_eq!(three.sessions.machine(), three.ids.machine());
    let user = three.snapshots().map(|snapshot| {
        let mut dictionary = snapshot.dictionary().unwrap();
        dictionary.retain(|key, _| key.starts_with("user/"));
        dictionary
    });
    assert_eq!(user[0], user[1]);
    assert_eq!(user[0], user[2]);
    let query = session_runtime::Query::encode(&DeskQuery::Total);
    assert_eq!(three.sessions.query(&query), three.serials.query(&query));
    assert_eq!(three.sessions.query(&query), three.ids.query(&query));
}

#[test]
fn a_snapshot_of_one_wrapper_is_refused_by_another() {
    let mut three = Three::new();
    assert!(three.run(&DeskCommand::Add { amount: 7 }).iter().all(Result::is_ok));
    let kinds = ["sessions", "serials", "ids"];
    for (found, snapshot) in kinds.iter().zip(three.snapshots()) {
        let errors = [
            SessionStateMachine::<Desk>::restore(&snapshot).err(),
            SerialStateMachine::<Desk>::restore(&snapshot).err(),
            IdStateMachine::<Desk>::restore(&snapshot).err(),
        ];
        for (expected, error) in kinds.iter().zip(errors) {
            let (expected, found) = ((*expected).to_owned(), (*found).to_owned());
            let refused = (expected != found).then_some(SnapshotError::WrongKind { expected, found });
            assert_eq!(error, refused);
        }
    }
}
