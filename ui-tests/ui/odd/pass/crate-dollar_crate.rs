// A macro that makes whole machines, for crates that may not know where the runtime is: `crate = $crate::path`.
#![deny(warnings)]

#[doc(hidden)]
pub mod deps {
    pub use session_runtime as runtime;
}

use deps::runtime::SessionStateMachine;
use std::collections::BTreeMap;

#[macro_export]
macro_rules! store {
    ($name:ident, $command:ident) => {
        #[$crate::deps::runtime::state_machine(crate = $crate::deps::runtime)]
        pub enum $command {
            Put { key: String, value: u64 },
            Clear,
        }

        #[derive(Default, $crate::deps::runtime::State)]
        #[state(crate = $crate::deps::runtime)]
        pub struct $name {
            map: BTreeMap<String, u64>,
        }

        #[$crate::deps::runtime::state_machine(crate = $crate::deps::runtime, command = $command)]
        impl $name {
            fn put(&mut self, key: String, value: u64) -> Option<u64> {
                self.map.insert(key, value)
            }

            fn clear(&mut self) {
                self.map.clear();
            }

            #[query]
            fn get(&self, key: String) -> Option<u64> {
                self.map.get(&key).copied()
            }
        }
    };
}

// What serde derives itself: an enum with serde's attributes, and the queries of a generic machine.
#[macro_export]
macro_rules! shelf {
    ($name:ident, $command:ident) => {
        #[$crate::deps::runtime::state_machine(crate = $crate::deps::runtime)]
        pub enum $command {
            #[serde(rename = "p")]
            Put { value: u64 },
        }

        #[derive(Default, $crate::deps::runtime::State)]
        #[state(crate = $crate::deps::runtime)]
        pub struct $name<T> {
            values: Vec<T>,
            last: u64,
        }

        #[$crate::deps::runtime::state_machine(crate = $crate::deps::runtime, command = $command)]
        impl<T: $crate::deps::runtime::Wire + PartialEq> $name<T> {
            fn put(&mut self, value: u64) -> u64 {
                std::mem::replace(&mut self.last, value)
            }

            #[query]
            fn has(&self, value: T) -> bool {
                self.values.contains(&value)
            }
        }
    };
}

store!(Store, StoreCommand);
shelf!(Shelf, ShelfCommand);

mod other {
    use std::collections::BTreeMap;
    store!(Store, StoreCommand);
    shelf!(Shelf, ShelfCommand);
}

fn main() {
    shelf!(Local, LocalCommand);
    let mut store = SessionStateMachine::new(other::Store::default());
    let put = |key: &str| other::StoreCommand::Put { key: key.to_owned(), value: 4 };
    assert_eq!(log::ask::<_, Option<u64>>(&mut store, &put("a")), None);
    let get = other::StoreQuery::Get { key: "a".to_owned() };
    assert_eq!(log::read::<_, Option<u64>>(&log::again(&store), &get), Some(4));
    let mut shelf = SessionStateMachine::new(other::Shelf::<String>::default());
    assert_eq!(log::ask::<_, u64>(&mut shelf, &other::ShelfCommand::Put { value: 7 }), 0);
    let has = other::ShelfQuery::Has { value: "a".to_owned() };
    assert!(!log::read::<_, bool>(&shelf, &has));
    let mut local = SessionStateMachine::new(Local::<u64>::default());
    assert_eq!(log::ask::<_, u64>(&mut local, &LocalCommand::Put { value: 7 }), 0);
    let _ = (Store::default(), StoreCommand::Clear, Shelf::<u64>::default(), ShelfCommand::Put { value: 1 });
}

#[path = "../../log.rs"]
mod log;
