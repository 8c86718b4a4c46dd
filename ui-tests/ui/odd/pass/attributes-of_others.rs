#![deny(warnings)]
use session_runtime::{State, state_machine};

#[derive(Clone, Debug)]
#[state_machine]
#[derive(PartialEq)]
#[must_use]
#[doc(alias = "ask")]
pub enum CounterCommand {
    #[serde(rename = "plus")]
    Add {
        #[serde(with = "plain")]
        amount: u64,
        #[serde(skip)]
        hint: Option<u64>,
    },
}

mod plain {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(amount: &u64, to: S) -> Result<S::Ok, S::Error> {
        amount.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        u64::deserialize(from)
    }
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[doc(hidden)]
#[state_machine(command = CounterCommand)]
#[allow(clippy::all)]
impl Counter {
    #[inline]
    #[must_use]
    #[track_caller]
    #[doc(alias = "plus")]
    fn add(&mut self, #[allow(unused)] amount: u64, hint: Option<u64>) -> u64 {
        hint.unwrap_or(self.value)
    }
}

fn main() {
    let add = CounterCommand::Add { amount: 1, hint: None };
    assert_eq!(add, add.clone());
}
