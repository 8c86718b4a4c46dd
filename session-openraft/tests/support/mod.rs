//! The machines that the tests run.

#![allow(dead_code, missing_docs, unreachable_pub)]

use serde::{Deserialize, Serialize};
use session_runtime::{Context, Deterministic, Rejection, SessionId, State, state_machine};
use std::collections::{BTreeMap, BTreeSet};

#[state_machine]
#[derive(Clone, Debug, PartialEq)]
pub enum BankCommand {
    Open {
        owner: String,
    },
    Deposit {
        account: u64,
        amount: u64,
    },
    Withdraw {
        account: u64,
        amount: u64,
    },
    Watch(u64),
    Audit,
    Close {
        account: u64,
    },
    BlowUp,
    #[since = 2]
    Bonus {
        account: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic)]
pub enum Notice {
    BalanceChanged { account: u64, balance: u64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic, Rejection)]
pub enum Refused {
    NoSuchAccount,
    Insufficient { balance: u64 },
}

#[derive(Default, State)]
pub struct Bank {
    owners: BTreeMap<u64, String>,
    balances: BTreeMap<u64, u64>,
    watchers: BTreeMap<u64, BTreeSet<SessionId>>,
}

#[state_machine(command = BankCommand, server_request = Notice)]
impl Bank {
    fn open(&mut self, owner: String) -> u64 {
        let account = (self.owners.len() as u64).saturating_add(1);
        self.owners.insert(account, owner);
        self.balances.insert(account, 0);
        account
    }

    fn deposit(&mut self, cx: &mut Context<'_, Notice>, account: u64, amount: u64) -> Result<u64, Refused> {
        let balance = self.balances.get_mut(&account).ok_or(Refused::NoSuchAccount)?;
        *balance = balance.saturating_add(amount);
        for &session in self.watchers.get(&account).into_iter().flatten() {
            cx.send(session, Notice::BalanceChanged { account, balance: *balance });
        }
        Ok(*balance)
    }

    fn withdraw(&mut self, account: u64, amount: u64) -> Result<u64, Refused> {
        let balance = self.balances.get_mut(&account).ok_or(Refused::NoSuchAccount)?;
        *balance = balance.checked_sub(amount).ok_or(Refused::Insufficient { balance: *balance })?;
        Ok(*balance)
    }

    fn watch(&mut self, cx: &mut Context<'_, Notice>, account: u64) {
        if let Some(session) = cx.session() {
            self.watchers.entry(account).or_default().insert(session);
        }
    }

    fn audit(&self) -> u64 {
        self.balances.values().fold(0, |sum, balance| sum.saturating_add(*balance))
    }

    #[internal]
    fn close(&mut self, account: u64) -> Option<u64> {
        self.balances.remove(&account)
    }

    #[assume_infallible = "it fails on purpose"]
    fn blow_up(&mut self) {
        panic!("as asked");
    }

    fn bonus(&mut self, account: u64) -> Result<u64, Refused> {
        let balance = self.balances.get_mut(&account).ok_or(Refused::NoSuchAccount)?;
        *balance = balance.saturating_add(1);
        Ok(*balance)
    }

    #[query]
    fn balance(&self, account: u64) -> Option<u64> {
        self.balances.get(&account).copied()
    }
}

#[state_machine]
pub enum OtherCommand {
    Nothing,
}

#[derive(Default, State)]
pub struct Other {
    nothing: u64,
}

#[state_machine(command = OtherCommand)]
impl Other {
    fn nothing(&mut self) {}
}

pub fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[state_machine]
pub enum SlowCommand {
    Count,
}

/// A machine whose snapshots take their time, after the pause.
#[derive(Default, State)]
pub struct Slow {
    #[state(shared)]
    counted: Slowly,
}

#[state_machine(command = SlowCommand)]
impl Slow {
    fn count(&mut self) -> u64 {
        self.counted.0 = self.counted.0.saturating_add(1);
        self.counted.0
    }
}

#[derive(Clone, Default, Deserialize, Deterministic)]
pub struct Slowly(u64);

impl Serialize for Slowly {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        std::thread::sleep(std::time::Duration::from_millis(100));
        serializer.serialize_newtype_struct("Slowly", &self.0)
    }
}
