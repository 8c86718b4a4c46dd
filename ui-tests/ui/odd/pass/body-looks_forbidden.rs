// Bodies with what looks forbidden and is not: harmless macros, literals, types, names and strings.
#![deny(warnings)]

use serde::{Deserialize, Serialize};
use session_runtime::{Deterministic, Rejection, SessionStateMachine, State, state_machine};
use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic, Rejection)]
pub enum Refused {
    NoAddress(String),
}

#[state_machine]
pub enum Command {
    Halve { amount: u64 },
    Resolve { text: String },
    Words { text: String },
    Shape { numbers: Vec<u64> },
}

#[derive(Default, State)]
pub struct Store {
    peer: Option<SocketAddr>,
    value: u64,
}

struct Panic {
    unwrap: u64,
}

mod io {
    pub fn read(amount: u64) -> u64 {
        amount
    }
}

#[state_machine(command = Command)]
impl Store {
    fn halve(&mut self, amount: u64) -> u64 {
        self.value = amount / 2 % 0x1_0 / (3u64) + amount % 10_u64 / 0b1;
        self.value /= 1_000;
        self.value %= 7;
        let getrandom = amount.to_le_bytes().first().map_or(0, |first| first / b'a');
        self.value = self.value.max(u64::from(getrandom));
        let panic = Panic { unwrap: amount / 2 };
        self.value.saturating_add(panic.unwrap)
    }

    fn resolve(&mut self, text: String) -> Result<IpAddr, Refused> {
        use std::net::Ipv4Addr;
        let refused = |_| Refused::NoAddress(text.clone());
        let address: IpAddr = text.parse().map_err(refused)?;
        let port = if address == IpAddr::V4(Ipv4Addr::LOCALHOST) {
            1
        } else {
            2
        };
        self.peer = Some(std::net::SocketAddr::new(address, port));
        Ok(std::net::IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED).min(address))
    }

    fn words(&mut self, text: String) -> Vec<String> {
        // panic!("never"), SystemTime::now(), numbers[0], a / b
        let numbers: [u8; 3] = [1, 2, 3];
        let [first, .., last] = numbers;
        let width = usize::from(last);
        let mut words = vec![
            format!("{text:>5}: panic!() {first}"),
            format!("{:>width$}", "a / b", width = width),
        ];
        words.extend(vec![String::from("x"); 2]);
        if matches!(text.as_str(), "unwrap" | "expect" if self.value == 0) {
            words.clear();
        }
        words
    }

    fn shape(&mut self, numbers: Vec<u64>) -> u64 {
        fn inner<const N: usize>(numbers: [u64; N]) -> u64 {
            numbers.iter().copied().max().unwrap_or_default()
        }
        let add = |sum: u64, number: &u64| sum.saturating_add(*number);
        let sum = numbers.iter().fold(0, add);
        let first = match numbers.as_slice() {
            [] => 0,
            [first, ..] => *first,
        };
        let or_else = numbers.get(9).copied().unwrap_or_else(|| io::read(sum));
        'outer: for number in &numbers {
            while *number > 1 {
                break 'outer;
            }
        }
        inner([sum, first, or_else]).checked_div(first).unwrap_or(0)
    }
}

fn main() {
    let mut store = SessionStateMachine::new(Store::default());
    assert_eq!(log::ask::<_, u64>(&mut store, &Command::Halve { amount: 20 }), 10);
    let resolve = |text: &str| Command::Resolve {
        text: text.to_owned(),
    };
    let address: IpAddr = log::ask(&mut store, &resolve("127.0.0.1"));
    assert_eq!(address, IpAddr::from([127, 0, 0, 1]));
    assert_eq!(
        log::again(&store).machine().peer,
        Some(SocketAddr::from(([127, 0, 0, 1], 1)))
    );
    let refused: Refused = log::ask(&mut store, &resolve("nowhere"));
    assert_eq!(refused, Refused::NoAddress("nowhere".to_owned()));
    let words: Vec<String> = log::ask(
        &mut store,
        &Command::Words {
            text: "unwrap".to_owned(),
        },
    );
    assert!(words.is_empty());
    assert_eq!(
        log::ask::<_, u64>(&mut store, &Command::Shape { numbers: vec![2, 3] }),
        2
    );
}

#[path = "../../log.rs"]
mod log;
