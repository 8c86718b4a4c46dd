#![deny(warnings)]
use session_runtime::{Deterministic, RaftAction, SessionStateMachine, State, Timestamp, state_machine};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, Deterministic)]
pub struct Reading {
    #[assume_deterministic = "only ever compared for identity"]
    celsius: f32,
}

#[state_machine]
pub enum StoreCommand {
    Put { key: u64, value: String },
}

#[derive(Default, State)]
#[state(dropped("old", "older"))]
pub struct Store {
    #[state(per_entry)]
    map: BTreeMap<u64, String>,
    #[state(shared)]
    shared: Arc<Vec<u64>>,
    #[state(per_entry, default, was = "table")]
    entries: BTreeMap<String, Reading>,
    #[state(default)]
    added: Option<u64>,
    #[since = 2]
    later: u64,
    #[since = 3]
    #[state(per_entry)]
    latest: BTreeMap<u64, u64>,
    #[assume_deterministic = "counted the same way on every replica"]
    float: f64,
}

#[state_machine(command = StoreCommand)]
impl Store {
    fn put(&mut self, key: u64, value: String) -> Option<String> {
        self.map.insert(key, value)
    }
}

fn main() {
    let mut machine = SessionStateMachine::new(Store::default());
    let payload = session_runtime::Command::encode(&StoreCommand::Put { key: 10, value: "ten".to_owned() });
    machine.apply(1, Timestamp(0), RaftAction::InternalCommand { payload }).unwrap();
    let keys = |machine: &SessionStateMachine<Store>| {
        let dictionary = machine.snapshot().unwrap().dictionary().unwrap();
        dictionary.into_keys().filter(|key| key.starts_with("user/")).collect::<Vec<_>>()
    };
    let before = ["user/added", "user/entries", "user/float", "user/map", "user/map/0a", "user/shared"];
    assert_eq!(keys(&machine), before);
    machine.apply(2, Timestamp(0), RaftAction::Upgrade { version: 3 }).unwrap();
    assert!(keys(&machine).contains(&"user/latest".to_owned()));
    let restored = SessionStateMachine::<Store>::restore(&machine.snapshot().unwrap()).unwrap();
    assert_eq!(restored.machine().map[&10], "ten");
}
