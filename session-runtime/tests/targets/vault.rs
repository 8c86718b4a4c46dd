//! A machine whose commands hold everything that is hard to decode: nesting without end, texts, maps, numbers of all
//! widths, and elements without bytes.

use serde::{Deserialize, Serialize};
use session_runtime::{Bytes, Context, Deterministic, Rejection, SessionId, State, state_machine};
use std::collections::{BTreeMap, BTreeSet};

/// A value that may hold itself, in every way that serde has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic)]
pub enum Node {
    Empty,
    Number(i64),
    Large(u128),
    Text(String),
    Letter(char),
    Raw(Bytes),
    New(Box<Node>),
    Maybe(Option<Box<Node>>),
    List(Vec<Node>),
    Map(BTreeMap<String, Node>),
    Pair { left: Box<Node>, right: Box<Node> },
    Numbers(BTreeSet<i16>),
    Fixed([u8; 4], bool),
}

/// What clients may ask of the vault.
#[state_machine]
#[derive(Clone, Debug, PartialEq)]
pub enum VaultCommand {
    Put {
        key: String,
        value: Node,
    },
    PutAll {
        entries: BTreeMap<String, Vec<Node>>,
    },
    Remove(String),
    Mark {
        units: Vec<()>,
        by: BTreeMap<(), u64>,
    },
    Tell {
        to: SessionId,
        value: Node,
    },
    TellAll(Node),
    Look,
    Clear,
    #[since = 2]
    Rename {
        from: String,
        to: String,
    },
}

/// Why the vault may refuse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic, Rejection)]
pub enum Refused {
    NoSuchKey(String),
}

/// The machine.
#[derive(Debug, Default, PartialEq, State)]
pub struct Vault {
    #[state(per_entry)]
    nodes: BTreeMap<String, Node>,
    last: Option<Node>,
    marks: BTreeMap<u64, u64>,
    open: BTreeSet<SessionId>,
    #[since = 2]
    renames: u64,
}

#[state_machine(command = VaultCommand, server_request = Node)]
impl Vault {
    fn put(&mut self, key: String, value: Node) -> Option<Node> {
        self.last = Some(value.clone());
        self.nodes.insert(key, value)
    }

    fn put_all(&mut self, entries: BTreeMap<String, Vec<Node>>) -> u64 {
        let before = self.nodes.len() as u64;
        for (key, values) in entries {
            self.nodes.extend(values.into_iter().map(|value| (key.clone(), value)));
        }
        (self.nodes.len() as u64).saturating_sub(before)
    }

    fn remove(&mut self, key: String) -> Result<Node, Refused> {
        self.nodes.remove(&key).ok_or(Refused::NoSuchKey(key))
    }

    fn mark(&mut self, units: Vec<()>, by: BTreeMap<(), u64>) -> u64 {
        let times = self.marks.entry(units.len() as u64).or_default();
        *times = times.saturating_add(by.get(&()).copied().unwrap_or(1));
        *times
    }

    fn tell(&mut self, cx: &mut Context<'_, Node>, to: SessionId, value: Node) -> Option<u64> {
        cx.send(to, value).map(|id| id.0)
    }

    fn tell_all(&mut self, cx: &mut Context<'_, Node>, value: Node) {
        cx.broadcast(value);
    }

    fn look(&self) -> BTreeSet<String> {
        self.nodes.keys().cloned().collect()
    }

    #[internal]
    fn clear(&mut self) {
        self.nodes.clear();
    }

    fn rename(&mut self, from: String, to: String) -> Option<Node> {
        self.renames = self.renames.saturating_add(1);
        let value = self.nodes.remove(&from)?;
        self.nodes.insert(to, value)
    }

    #[query]
    fn get(&self, key: String) -> Option<Node> {
        self.nodes.get(&key).cloned()
    }

    #[query]
    fn matches(&self, value: Node, units: Vec<()>) -> bool {
        self.last.as_ref() == Some(&value) && units.is_empty()
    }

    #[session_created]
    fn opened(&mut self, cx: &mut Context<'_, Node>) {
        self.open.extend(cx.session());
    }

    #[session_closed]
    fn closed(&mut self, cx: &mut Context<'_, Node>) {
        self.open.retain(|session| Some(*session) != cx.session());
    }
}
