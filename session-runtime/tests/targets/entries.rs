//! Any bytes as a log entry of each kind, and as a whole log: whatever stands in it is applied or refused, and the
//! machine can be captured after it.

use super::pieces;
use super::vault::Vault;
use session_runtime::ids::{IdEntry, IdStateMachine};
use session_runtime::serials::{SerialEntry, SerialStateMachine};
use session_runtime::{ApplyError, Entry, SessionStateMachine, Snapshot};

pub fn run(bytes: &[u8]) {
    log_of_sessions(bytes);
    log_of_serials(bytes);
    log_of_ids(bytes);
}

/// The three kinds of entries and machines have the same names.
macro_rules! log_of {
    ($name:ident, $entry:ident, $machine:ident) => {
        fn $name(bytes: &[u8]) {
            let mut machine = $machine::new(Vault::default());
            let mut index = 0;
            for piece in std::iter::once(bytes).chain(pieces(bytes)) {
                let Ok(entry) = $entry::decode(piece) else { continue };
                let again = entry.try_encode().expect("it was read");
                assert_eq!($entry::decode(&again).as_ref(), Ok(&entry));
                index += 1;
                if let Err(error) = machine.apply(index, entry.time, entry.action) {
                    let ApplyError::NeedsBuild { version } = error else { panic!("{error}") };
                    assert!(version > Vault::SCHEMA.version);
                }
            }
            let captured = machine.snapshot().unwrap().to_bytes().unwrap();
            let restored = $machine::<Vault>::restore(&Snapshot::from_bytes(&captured).unwrap()).unwrap();
            assert_eq!(restored.snapshot().unwrap().to_bytes().unwrap(), captured);
        }
    };
}

log_of!(log_of_sessions, Entry, SessionStateMachine);
log_of!(log_of_serials, SerialEntry, SerialStateMachine);
log_of!(log_of_ids, IdEntry, IdStateMachine);
