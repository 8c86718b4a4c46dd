//! What the benchmarks share: the smallest machine, and one that uses every part of the framework.

pub mod load;

use serde::{Deserialize, Serialize};
use session_runtime::rand_core::Rng;
use session_runtime::testing::Dice;
use session_runtime::{Context, Deterministic, Rejection, SessionId, State, Timestamp, state_machine};
use std::collections::{BTreeMap, BTreeSet};

/// What clients may ask of the counter.
#[state_machine]
pub enum CounterCommand {
    /// Adds to it.
    Add {
        /// How much.
        amount: u64,
    },
}

/// The smallest machine.
#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    /// The handler, which the benchmarks also call without the framework.
    pub fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

/// What clients may ask of the exchange.
#[state_machine]
#[derive(Clone, Debug, PartialEq)]
pub enum ExchangeCommand {
    /// Puts into an account.
    Deposit {
        /// Which.
        account: u8,
        /// How much.
        amount: u64,
    },
    /// Takes from an account, or is refused.
    Withdraw {
        /// Which.
        account: u8,
        /// How much.
        amount: u64,
    },
    /// Wants to know when an account changes.
    Watch(u8),
    /// Tells everybody.
    Announce(String),
    /// Draws from the log's generator.
    Draw,
    /// What is there altogether.
    Audit,
    /// Since version 2: takes a fee of every account.
    #[since = 2]
    Charge,
    /// Since version 3: moves between accounts.
    #[since = 3]
    Move {
        /// From where.
        from: u8,
        /// To where.
        to: u8,
    },
}

/// What the exchange may ask of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic)]
pub enum Notice {
    /// An account changed.
    Changed {
        /// Which.
        account: u8,
        /// What is in it now.
        balance: u64,
    },
    /// Somebody says something.
    Said(String),
    /// Somebody left.
    Left,
}

/// Why the exchange may refuse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic, Rejection)]
pub enum Refused {
    /// There is not enough.
    Insufficient {
        /// What there is.
        balance: u64,
    },
}

/// The machine.
#[derive(Default, State)]
pub struct Exchange {
    #[state(per_entry)]
    balances: BTreeMap<u8, u64>,
    watchers: BTreeMap<u8, BTreeSet<SessionId>>,
    last: Option<(u64, Timestamp, u64)>,
    opened: u64,
    #[since = 2]
    fees: u64,
}

#[state_machine(command = ExchangeCommand, server_request = Notice)]
impl Exchange {
    fn deposit(&mut self, cx: &mut Context<'_, Notice>, account: u8, amount: u64) -> u64 {
        let balance = self.balances.entry(account).or_default();
        *balance = balance.saturating_add(amount);
        for session in self.watchers.get(&account).into_iter().flatten() {
            cx.send(*session, Notice::Changed { account, balance: *balance });
        }
        *balance
    }

    fn withdraw(&mut self, account: u8, amount: u64) -> Result<u64, Refused> {
        let balance = self.balances.entry(account).or_default();
        *balance = balance.checked_sub(amount).ok_or(Refused::Insufficient { balance: *balance })?;
        Ok(*balance)
    }

    fn watch(&mut self, cx: &mut Context<'_, Notice>, account: u8) {
        self.watchers.entry(account).or_default().extend(cx.session());
    }

    #[allow(clippy::unused_self)] // a handler takes it all the same
    fn announce(&mut self, cx: &mut Context<'_, Notice>, text: String) -> u64 {
        cx.broadcast(Notice::Said(text));
        cx.sessions().count() as u64
    }

    fn draw(&mut self, cx: &mut Context<'_, Notice>) -> u64 {
        let drawn = cx.rng().next_u64();
        self.last = Some((cx.index(), cx.now(), drawn));
        drawn
    }

    fn audit(&self) -> u64 {
        self.balances.values().fold(self.fees, |sum, balance| sum.saturating_add(*balance))
    }

    fn charge(&mut self, cx: &mut Context<'_, Notice>) -> u64 {
        let fee = u64::from(cx.version());
        for balance in self.balances.values_mut() {
            self.fees = self.fees.saturating_add(fee.min(*balance));
            *balance = balance.saturating_sub(fee);
        }
        self.fees
    }

    #[allow(clippy::unnecessary_wraps)] // nobody can refuse it, and its type says who could
    fn r#move(&mut self, from: u8, to: u8) -> Result<u64, Refused> {
        let moved = self.balances.remove(&from).unwrap_or_default();
        let balance = self.balances.entry(to).or_default();
        *balance = balance.saturating_add(moved);
        Ok(moved)
    }

    #[query]
    fn balance(&self, account: u8) -> Option<u64> {
        self.balances.get(&account).copied()
    }

    #[session_created]
    fn greet(&mut self) {
        self.opened = self.opened.saturating_add(1);
    }

    #[session_closed]
    fn forget(&mut self, cx: &mut Context<'_, Notice>) {
        if let Some(session) = cx.session() {
            for watchers in self.watchers.values_mut() {
                watchers.remove(&session);
            }
            cx.broadcast(Notice::Left);
        }
    }
}

/// A command of any kind.
pub fn exchange_command(dice: &mut Dice) -> ExchangeCommand {
    let account = u8::try_from(dice.below(6)).unwrap_or_default();
    match dice.below(12) {
        0..=3 => ExchangeCommand::Deposit { account, amount: dice.below(100) },
        4..=5 => ExchangeCommand::Withdraw { account, amount: dice.below(150) },
        6 => ExchangeCommand::Watch(account),
        7 => ExchangeCommand::Announce("news".to_owned()),
        8 => ExchangeCommand::Draw,
        9 => ExchangeCommand::Audit,
        10 => ExchangeCommand::Charge,
        _ => ExchangeCommand::Move { from: account, to: u8::try_from(dice.below(6)).unwrap_or_default() },
    }
}
