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
fn fields_that_a_snapshot_may_lack_come_back_from_one_that_has_them() {
    let store = second::Store { note: Some("kept".to_owned()), ..Default::default() };
    let mut new = SessionStateMachine::new(store);
    new.apply(1, Timestamp(0), RaftAction::Upgrade { version: 2 }).expect("this build knows it");
    internal(&mut new, &second::StoreCommand::Remove { key: 1 });
    let snapshot = new.snapshot().expect("it is taken");
    let again = SessionStateMachine::<second::Store>::restore(&snapshot).expect("it fits");
    assert_eq!((again.machine().note.as_deref(), again.machine().removed), (Some("kept"), 1));
    assert_eq!(again.snapshot().unwrap().to_bytes(), snapshot.to_bytes());
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

/// A later build that has dropped or renamed the map.
mod without {
    use super::restored::Command;
    use session_runtime::{State, state_machine};
    use std::collections::BTreeMap;

    #[derive(Default, State)]
    #[state(dropped("map"))]
    pub(super) struct Dropped {}

    #[state_machine(command = Command, name = "Map")]
    impl Dropped {
        fn set(&mut self, key: u64) -> Option<u64> {
            Some(key)
        }
    }

    #[derive(Default, State)]
    pub(super) struct Renamed {
        #[state(per_entry, was = "map")]
        pub(super) table: BTreeMap<u64, u64>,
    }

    #[state_machine(command = Command, name = "Map")]
    impl Renamed {
        fn set(&mut self, key: u64) -> Option<u64> {
            self.table.insert(key, key)
        }
    }
}

#[test]
fn a_map_stored_by_entry_can_be_dropped_or_renamed_with_all_its_entries() {
    let mut machine = SessionStateMachine::new(restored::ByEntry::default());
    for key in [1, 300] {
        internal(&mut machine, &restored::Command::Set { key });
    }
    let snapshot = machine.snapshot().unwrap();
    assert!(SessionStateMachine::<without::Dropped>::restore(&snapshot).is_ok());
    let renamed = SessionStateMachine::<without::Renamed>::restore(&snapshot).expect("it says what it was");
    assert_eq!(renamed.machine().table.keys().copied().collect::<Vec<_>>(), [1, 300]);
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
