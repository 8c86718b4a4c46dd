//! Two builds of one machine: what the derived state makes of the other's snapshots, and of commands that are not
//! active yet.

use session_runtime::{
    Command, RaftAction, RequestError, ServerAction, SessionStateMachine, SnapshotError, StateMachine,
    Timestamp,
};

mod first {
    use session_runtime::{State, state_machine};
    use std::collections::BTreeMap;

    #[state_machine]
    pub(crate) enum StoreCommand {
        Put { key: u64, value: String },
    }

    #[derive(Default, State)]
    pub(crate) struct Store {
        pub(crate) table: BTreeMap<u64, String>,
        writes: u64,
    }

    #[state_machine(command = StoreCommand)]
    impl Store {
        fn put(&mut self, key: u64, value: String) -> Option<String> {
            self.writes = self.writes.saturating_add(1);
            self.table.insert(key, value)
        }
    }
}

mod second {
    use session_runtime::{State, state_machine};
    use std::collections::BTreeMap;

    #[state_machine]
    pub(crate) enum StoreCommand {
        Put {
            key: u64,
            value: String,
        },
        #[since = 2]
        Remove {
            key: u64,
        },
    }

    #[derive(Default, State)]
    #[state(dropped("writes"))]
    pub(crate) struct Store {
        #[state(was = "table")]
        pub(crate) map: BTreeMap<u64, String>,
        #[state(default)]
        pub(crate) note: Option<String>,
        #[since = 2]
        pub(crate) removed: u64,
    }

    #[state_machine(command = StoreCommand)]
    impl Store {
        fn put(&mut self, key: u64, value: String) -> Option<String> {
            self.map.insert(key, value)
        }

        fn remove(&mut self, key: u64) -> Option<String> {
            self.removed = self.removed.saturating_add(1);
            self.map.remove(&key)
        }
    }
}

fn internal<M: StateMachine>(
    machine: &mut SessionStateMachine<M>,
    command: &M::Command,
) -> Vec<ServerAction> {
    let index = machine.last_applied() + 1;
    let payload = command.encode();
    let action = RaftAction::InternalCommand { payload };
    machine.apply(index, Timestamp(0), action).expect("it applies")
}

fn old_machine() -> SessionStateMachine<first::Store> {
    let mut old = SessionStateMachine::new(first::Store::default());
    let value = "one".to_owned();
    internal(&mut old, &first::StoreCommand::Put { key: 1, value });
    old
}

#[test]
fn a_later_build_goes_on_from_an_earlier_snapshot() {
    let snapshot = old_machine().snapshot().expect("it is taken");
    let mut new = SessionStateMachine::<second::Store>::restore(&snapshot).expect("it fits");
    assert_eq!(new.machine().map[&1], "one");
    assert_eq!((new.machine().note.as_deref(), new.machine().removed), (None, 0));

    // Not active yet, on builds that know it too.
    let remove = second::StoreCommand::Remove { key: 1 };
    let invalid = ServerAction::InternalResponse { result: Err(RequestError::InvalidPayload) };
    assert_eq!(internal(&mut new, &remove), [invalid]);

    let index = new.last_applied() + 1;
    let upgrade = RaftAction::Upgrade { version: 2 };
    new.apply(index, Timestamp(0), upgrade).expect("this build knows it");
    internal(&mut new, &remove);
    assert_eq!((new.machine().map.len(), new.machine().removed), (0, 1));
}

#[test]
fn a_field_that_exists_only_later_is_not_written_before() {
    let new = SessionStateMachine::new(second::Store::default());
    let dictionary = new.snapshot().map(|snapshot| snapshot.dictionary());
    let dictionary = dictionary.expect("it is taken").expect("it is read");
    let user: Vec<&str> =
        dictionary.keys().map(String::as_str).filter(|key| key.starts_with("user/")).collect();
    assert_eq!(user, ["user/map", "user/note"]);
}

#[test]
fn a_field_that_was_changed_before_its_version_is_named() {
    let early = second::Store { removed: 3, ..Default::default() };
    let error = SessionStateMachine::new(early).snapshot().expect_err("it must not be lost");
    assert!(error.to_string().contains("`removed`"), "{error}");
}

#[test]
fn an_earlier_build_refuses_a_later_snapshot() {
    let mut new = SessionStateMachine::new(second::Store::default());
    new.apply(1, Timestamp(0), RaftAction::Upgrade { version: 2 }).expect("this build knows it");
    let snapshot = new.snapshot().expect("it is taken");
    let refused = SessionStateMachine::<first::Store>::restore(&snapshot).map(|_| ());
    assert_eq!(refused, Err(SnapshotError::NeedsBuild { version: 2 }));
}

/// The first build's store, its map stored entry by entry.
mod restored {
    use session_runtime::{State, state_machine};
    use std::collections::BTreeMap;

    #[state_machine]
    pub(super) enum Command {
        Set { key: u64 },
    }

    #[derive(Default, State)]
    pub(super) struct Plain {
        map: BTreeMap<u64, u64>,
    }

    #[state_machine(command = Command, name = "Map")]
    impl Plain {
        fn set(&mut self, key: u64) -> Option<u64> {
            self.map.insert(key, key)
        }
    }

    #[derive(Default, State)]
    pub(super) struct ByEntry {
        #[state(per_entry)]
        map: BTreeMap<u64, u64>,
    }

    #[state_machine(command = Command, name = "Map")]
    impl ByEntry {
        fn set(&mut self, key: u64) -> Option<u64> {
            self.map.insert(key, key)
        }
    }
}

#[test]
fn how_a_map_is_stored_is_part_of_its_schema() {
    let snapshot = SessionStateMachine::new(restored::Plain::default()).snapshot().unwrap();
    let error = SessionStateMachine::<restored::ByEntry>::restore(&snapshot).err().unwrap().to_string();
    assert!(
        error.contains("is `BTreeMap<u64, u64>` in the snapshot and `per_entry BTreeMap<u64, u64>`"),
        "{error}"
    );
}
