// serde attributes that the log's format can read back stay, and mean what they mean to serde.
#![deny(warnings)]

use session_runtime::{Command as _, State, state_machine};

mod doubled {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        value.wrapping_mul(2).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        u64::deserialize(from).map(|value| value / 2)
    }
}

#[state_machine]
#[derive(Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Add {
        #[serde(rename = "n", with = "doubled")]
        amount: u64,
        #[serde(skip)]
        note: u64,
    },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn add(&mut self, amount: u64, note: u64) -> u64 {
        self.value = self.value.wrapping_add(amount).wrapping_add(note);
        self.value
    }
}

fn main() {
    let bytes = Command::Add { amount: 5, note: 9 }.encode();
    assert_eq!(bytes.as_ref(), [0, 10]);
    assert_eq!(Command::decode(&bytes), Ok(Command::Add { amount: 5, note: 0 }));
}
