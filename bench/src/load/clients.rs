//! What the clients know of their sessions.

use session_runtime::testing::Dice;
use session_runtime::{RequestId, ServerRequestId, SessionId};
use std::collections::HashMap;

/// How many of its requests a client remembers.
const REMEMBERED: usize = 4;

/// A request that was answered.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) tell: Option<SessionId>,
    pub(super) answer: (u64, Option<u64>),
}

/// What one client knows.
pub(super) struct Client {
    pub(super) id: SessionId,
    /// The number it uses next.
    next: u64,
    /// A number that the next ones overtake.
    overtaken: Option<u64>,
    /// What it said of the lowest request without an answer.
    pub(super) watermark: u64,
    /// How many of its requests ran.
    pub(super) worked: u64,
    asked: [Asked; REMEMBERED],
    /// The last server request it was sent, and the last it acknowledged.
    pub(super) told: u64,
    pub(super) acked: u64,
    pub(super) last_active: u64,
}

impl Client {
    pub(super) fn new(id: SessionId, now: u64) -> Self {
        Self {
            id,
            next: 1,
            overtaken: None,
            watermark: 1,
            worked: 0,
            asked: Default::default(),
            told: 0,
            acked: 0,
            last_active: now,
        }
    }

    /// A number that was not used before; sometimes not the lowest of them.
    pub(super) fn fresh_number(&mut self, dice: &mut Dice) -> u64 {
        match self.overtaken {
            Some(number) if dice.percent(50) => {
                self.overtaken = None;
                return number;
            }
            None if dice.percent(10) => {
                self.overtaken = Some(self.next);
                self.next += 1;
            }
            _ => {}
        }
        self.next += 1;
        self.next - 1
    }

    /// The lowest request without an answer, as the client knows it when it sends this one: it may lag behind.
    pub(super) fn lowest_pending(&mut self, number: u64, dice: &mut Dice) -> RequestId {
        let lowest = self.overtaken.unwrap_or(number).min(number);
        let known = lowest.saturating_sub(dice.below(REMEMBERED as u64));
        self.watermark = self.watermark.max(known);
        RequestId(self.watermark)
    }

    /// All it was sent, some of it, or what it acknowledged before. One client in eight never acknowledges anything.
    pub(super) fn acknowledge(&mut self, dice: &mut Dice) -> ServerRequestId {
        if !self.id.0.is_multiple_of(8) {
            self.acked += dice.below(self.pending() + 1);
        }
        ServerRequestId(self.acked)
    }

    pub(super) fn pending(&self) -> u64 {
        self.told - self.acked
    }

    pub(super) fn remember(&mut self, asked: Asked) {
        self.asked[slot(asked.number)] = asked;
    }

    /// Some request that was answered, if any is remembered.
    pub(super) fn recall(&self, dice: &mut Dice) -> Option<Asked> {
        let asked = *dice.pick(&self.asked)?;
        (asked.number > 0).then_some(asked)
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number % REMEMBERED as u64).unwrap_or_default()
}

/// All clients with an open session.
#[derive(Default)]
pub(super) struct Clients {
    all: Vec<Client>,
    places: HashMap<SessionId, usize>,
}

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    pub(super) fn get(&self, id: SessionId) -> Option<&Client> {
        self.all.get(*self.places.get(&id)?)
    }

    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Client> {
        self.all.get_mut(*self.places.get(&id)?)
    }

    pub(super) fn add(&mut self, client: Client) {
        let before = self.places.insert(client.id, self.all.len());
        assert!(before.is_none(), "two sessions have one id");
        self.all.push(client);
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Client> {
        let place = self.places.remove(&id)?;
        let removed = self.all.swap_remove(place);
        if let Some(moved) = self.all.get(place) {
            self.places.insert(moved.id, place);
        }
        Some(removed)
    }

    /// One of them. A tenth of the clients does half of the work, so that others are idle for long.
    pub(super) fn pick(&self, dice: &mut Dice) -> Option<SessionId> {
        let busy = &self.all[..self.all.len().div_ceil(10)];
        let among = if dice.percent(50) { busy } else { &self.all };
        dice.pick(among).map(|client| client.id)
    }
}
