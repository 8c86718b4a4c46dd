#![deny(warnings)]
use session_runtime::{Query, SessionStateMachine, State, Wire, state_machine};
use std::collections::BTreeMap;

#[state_machine]
pub enum StoreCommand {
    Clear { from: u64 },
}

#[derive(State)]
pub struct Store<K, V, const N: usize>
where
    K: Ord,
{
    map: BTreeMap<K, V>,
    limits: BTreeMap<u64, [u8; 4]>,
    #[state(per_entry)]
    by_key: BTreeMap<K, u64>,
    row: [u64; N],
}

#[state_machine(command = StoreCommand)]
impl<K: Wire + Ord, V: Wire + Clone, const N: usize> Store<K, V, N>
where
    K: Clone,
    [u64; N]: Wire,
{
    fn clear(&mut self, from: u64) -> Option<V> {
        let value = self.map.values().next().cloned();
        self.limits.remove(&from);
        self.map.clear();
        value
    }

    #[query]
    fn get(&self, key: K) -> Option<V> {
        self.map.get(&key).cloned()
    }

    #[query]
    fn len(&self) -> u64 {
        self.map.len() as u64
    }
}

fn main() {
    let store: Store<u64, String, 3> = Store {
        map: BTreeMap::from([(1, "one".to_owned())]),
        limits: BTreeMap::new(),
        by_key: BTreeMap::from([(7, 8)]),
        row: [4, 5, 6],
    };
    assert_eq!(Store::<u64, String, 3>::SCHEMA.name, "Store");
    let machine = SessionStateMachine::new(store);
    let query = StoreQuery::Get { key: 1u64 };
    assert!(machine.query(&query.encode()).is_ok());
    let snapshot = machine.snapshot().unwrap();
    assert!(snapshot.dictionary().unwrap().contains_key("user/by_key/07"));
    assert!(SessionStateMachine::<Store<u64, String, 3>>::restore(&snapshot).is_ok());
}
