//! The bank: commands, state, handlers. Nothing in it knows of disks, clients or retries.

use serde::{Deserialize, Serialize};
use session_runtime::{Context, Deterministic, Rejection, SessionId, State, state_machine};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What clients may ask of the bank.
#[state_machine]
pub(crate) enum BankCommand {
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
    Watch {
        account: u64,
    },
    /// The operator's, not the clients'.
    Close {
        account: u64,
    },
}

/// What the bank may tell a client.
#[derive(Debug, PartialEq, Serialize, Deserialize, Deterministic)]
pub(crate) enum Notice {
    BalanceChanged { account: u64, balance: u64 },
}

/// Why the bank may refuse. Part of the answer, never an exception.
#[derive(Debug, PartialEq, Serialize, Deserialize, Deterministic, Rejection)]
pub(crate) enum Refused {
    NoSuchAccount,
    Insufficient { balance: u64 },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchAccount => write!(f, "there is no such account"),
            Self::Insufficient { balance } => write!(f, "the account holds only {balance}"),
        }
    }
}

#[derive(Default, State)]
pub(crate) struct Bank {
    /// The number of the account opened last.
    last: u64,
    owners: BTreeMap<u64, String>,
    balances: BTreeMap<u64, u64>,
    watchers: BTreeMap<u64, BTreeSet<SessionId>>,
}

#[state_machine(command = BankCommand, server_request = Notice)]
impl Bank {
    fn open(&mut self, owner: String) -> u64 {
        self.last = self.last.saturating_add(1);
        self.owners.insert(self.last, owner);
        self.balances.insert(self.last, 0);
        self.last
    }

    fn deposit(&mut self, cx: &mut Context<'_, Notice>, account: u64, amount: u64) -> Result<u64, Refused> {
        let balance = self.balances.get_mut(&account).ok_or(Refused::NoSuchAccount)?;
        *balance = balance.saturating_add(amount);
        let balance = *balance;
        self.tell_watchers(cx, account, balance);
        Ok(balance)
    }

    fn withdraw(&mut self, cx: &mut Context<'_, Notice>, account: u64, amount: u64) -> Result<u64, Refused> {
        let balance = self.balances.get_mut(&account).ok_or(Refused::NoSuchAccount)?;
        *balance = balance.checked_sub(amount).ok_or(Refused::Insufficient { balance: *balance })?;
        let balance = *balance;
        self.tell_watchers(cx, account, balance);
        Ok(balance)
    }

    fn watch(&mut self, cx: &mut Context<'_, Notice>, account: u64) -> Result<(), Refused> {
        if !self.balances.contains_key(&account) {
            return Err(Refused::NoSuchAccount);
        }
        self.watchers.entry(account).or_default().extend(cx.session());
        Ok(())
    }

    #[internal]
    fn close(&mut self, account: u64) -> Option<u64> {
        self.owners.remove(&account);
        self.watchers.remove(&account);
        self.balances.remove(&account)
    }

    #[query]
    fn accounts(&self) -> Vec<(u64, String, u64)> {
        let balance = |account| self.balances.get(account).copied().unwrap_or_default();
        self.owners.iter().map(|(account, owner)| (*account, owner.clone(), balance(account))).collect()
    }

    #[query]
    pub(crate) fn balance(&self, account: u64) -> Option<u64> {
        self.balances.get(&account).copied()
    }

    #[session_closed]
    fn forget(&mut self, cx: &mut Context<'_, Notice>) {
        let Some(session) = cx.session() else { return };
        self.watchers.retain(|_, watchers| {
            watchers.remove(&session);
            !watchers.is_empty()
        });
    }
}

impl Bank {
    fn tell_watchers(&self, cx: &mut Context<'_, Notice>, account: u64, balance: u64) {
        for session in self.watchers.get(&account).into_iter().flatten() {
            cx.send(*session, Notice::BalanceChanged { account, balance });
        }
    }
}
