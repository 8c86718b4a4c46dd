//! Any bytes as a command and as a query: they are refused, or are a value that can be written and read again; and
//! the machine says the same about them.

use super::vault::{Vault, VaultCommand, VaultQuery};
use crate::support::{create, id, request_with};
use session_runtime::codec::{EncodeError, MAX_EMPTY_ELEMENTS};
use session_runtime::{
    Command, Query, QueryError, RequestError, RequestId, ServerAction, SessionStateMachine, Timestamp,
};

pub fn run(bytes: &[u8]) {
    let command = VaultCommand::decode(bytes).ok();
    if let Some(command) = &command {
        read_again(command);
    }
    apply(command.as_ref(), bytes);
    ask(bytes);
}

fn read_again(command: &VaultCommand) {
    match command.try_encode() {
        Ok(again) => {
            assert_eq!(VaultCommand::decode(&again).as_ref(), Ok(command));
            assert_eq!(command.encode(), again);
        }
        // Numbers may take more bytes than they need, and each byte allows one more element without bytes. Written
        // with fewer bytes, the elements are too many.
        Err(error) => {
            let VaultCommand::Mark { units, .. } = command else { panic!("{command:?}: {error}") };
            assert!(error == EncodeError::TooManyElements && units.len() > MAX_EMPTY_ELEMENTS);
        }
    }
}

/// The command as a client's first request, and a copy of it.
fn apply(command: Option<&VaultCommand>, bytes: &[u8]) {
    let mut machine = SessionStateMachine::new(Vault::default());
    let session = id(1);
    machine.apply(1, Timestamp(0), create(session)).unwrap();
    let request = request_with(session, 1, 1, 0, bytes.to_vec().into());
    let out = machine.apply(2, Timestamp(0), request.clone()).unwrap();
    let runs = command.is_some_and(|command| command.since() == 1 && *command != VaultCommand::Clear);
    let refused = ServerAction::SendRequestError {
        session,
        request: RequestId(1),
        error: RequestError::InvalidPayload,
    };
    assert_eq!(out[0] != refused, runs, "{command:?} gave {out:?}");
    let again = machine.apply(3, Timestamp(0), request).unwrap();
    assert_eq!(again, out[..1], "a copy");
    let snapshot = machine.snapshot().unwrap();
    let restored = SessionStateMachine::<Vault>::restore(&snapshot).unwrap();
    assert_eq!(restored.machine(), machine.machine());
}

fn ask(bytes: &[u8]) {
    let machine = SessionStateMachine::new(Vault::default());
    match (VaultQuery::decode(bytes), machine.query(bytes)) {
        (Ok(_), Ok(_)) => {}
        (Err(decoding), Err(QueryError::Invalid(error))) => assert_eq!(error, decoding),
        (query, answer) => panic!("{query:?} gave {answer:?}", query = query.is_ok()),
    }
}
