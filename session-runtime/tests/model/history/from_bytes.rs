//! Histories from bytes, for a fuzzer: one byte a choice, so that another byte is another choice and nothing else
//! moves.

use super::{
    Deed, Delay, Drawn, Gap, MAX_AGE, Moment, Move, PLACES, Payload, Said, Step, Who, age_probe, burst, pile,
    resolve,
};
use crate::support::DeskCommand;
use session_runtime::Limits;

/// How many moves a history has at most.
const MOVES: usize = 96;

/// The history that these bytes choose.
pub fn history(bytes: &[u8]) -> Vec<Step> {
    let mut choices = Choices(bytes);
    let mut moves = Vec::new();
    while !choices.0.is_empty() && moves.len() < MOVES {
        moves.extend(choices.moves());
    }
    resolve(1, moves.into_iter())
}

/// What is left to choose with. Once it is used up, the first choice is always taken.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.byte()) % bound
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Nothing, or one of these.
    fn maybe<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let choice = usize::from(self.byte()) % (choices.len() + 1);
        choices.get(choice).copied()
    }

    fn list<T>(&mut self, most: u64, mut next: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| next(self)).collect()
    }

    /// Mostly one move; sometimes a few that only mean something in a row.
    fn moves(&mut self) -> Vec<Move> {
        match self.byte() {
            0..=3 => {
                age_probe((self.who(), self.one_of(&[0, 1, -1, 2, -2]), self.below(3), self.byte() % 2 == 1))
            }
            4..=7 => burst((self.payload(), self.list(4, |c| (c.who(), c.below(6))))),
            8..=11 => pile(self.list(3, |c| (c.words(), c.below(5)))),
            kind => vec![Move {
                deed: self.deed(kind),
                gap: self.gap(),
                delay: self.delay(),
                skip: self.byte() >= 250,
            }],
        }
    }

    fn gap(&mut self) -> Gap {
        match self.byte() {
            250.. => Gap::Back(self.below(3)),
            245.. => Gap::Age(self.who(), self.one_of(&[0, 1, -1, 2, -2])),
            byte => Gap::By(1 + u64::from(byte) / 100),
        }
    }

    fn delay(&mut self) -> Delay {
        match self.byte() {
            255 => Delay::EndOfTime,
            byte @ 240.. => Delay::Before(u64::from(byte) - 240),
            byte => Delay::After(u64::from(byte) / 6),
        }
    }

    fn deed(&mut self, kind: u8) -> Deed {
        match kind % 16 {
            0 | 1 => {
                Deed::Open { place: self.place(), drawn: self.drawn(), capabilities: self.capabilities() }
            }
            2 => Deed::Reopen { who: self.who(), capabilities: self.capabilities() },
            3..=6 => Deed::Request {
                who: self.who(),
                number: self.one_of(&[1, 2, 3, 4, 5, 6, 0, u64::MAX]),
                lowest: self.one_of(&[1, 0, 2, 3, 4, 5, 7, u64::MAX]),
                acked: self.acked(),
                payload: self.payload(),
            },
            7 => Deed::Copy { back: usize::from(self.byte()) % 8 },
            8 => Deed::Ack(self.who(), self.acked()),
            9 => Deed::Expire(self.who()),
            10 => Deed::Retry(self.moment(), self.one_of(&[0, 1, 2, 3, u32::MAX])),
            11 => Deed::KeepAlive(self.list(4, |c| (c.who(), c.below(8), c.acked()))),
            12 => Deed::Internal(self.payload()),
            13 => Deed::Configure(self.limits(), self.maybe(&[0, 1, 2])),
            14 => Deed::Upgrade(self.one_of(&[2, 1, 0, 3, u32::MAX])),
            _ => Deed::Tick,
        }
    }

    fn place(&mut self) -> usize {
        usize::from(self.byte()) % PLACES
    }

    fn who(&mut self) -> Who {
        let byte = usize::from(self.byte());
        Who { place: byte % PLACES, back: byte / PLACES % 3 }
    }

    fn drawn(&mut self) -> Drawn {
        match self.byte() {
            byte @ 0..240 => Drawn::Ago(u64::from(byte) % 4),
            byte @ 240..250 => Drawn::Ago(MAX_AGE - 2 + u64::from(byte) % 5),
            byte => Drawn::Ahead(if byte == 255 { u64::MAX } else { u64::from(byte) % 3 }),
        }
    }

    fn capabilities(&mut self) -> u8 {
        self.byte() % 8
    }

    fn acked(&mut self) -> u64 {
        self.one_of(&[0, 1, 2, 3, 4, 8, u64::MAX])
    }

    fn moment(&mut self) -> Moment {
        match self.byte() {
            255 => Moment::At(u64::MAX),
            254 => Moment::At(0),
            byte => Moment::Near(i64::from(byte % 8) - 5),
        }
    }

    fn limits(&mut self) -> Limits {
        Limits {
            idle_timeout: self.maybe(&[0, 1, 3, 8, 20, 40, u64::MAX]),
            max_sessions: self.maybe(&[0, 1, 2, 3, 5, u32::MAX]),
            evict_idlest: self.byte() % 2 == 1,
            max_cached_bytes: self.maybe(&[0, 1, 32, 33, 34, 40, 66, 100, u64::MAX]),
            max_pending_requests: self.maybe(&[0, 1, 2, 3, 5, u32::MAX]),
        }
    }

    fn payload(&mut self) -> Payload {
        match self.byte() {
            0..230 => Payload::Of(self.said()),
            230..235 => Payload::Trailing(self.said()),
            235..240 => Payload::Cut(self.said()),
            240..243 => Payload::Raw([&[3, 253][..], &[255; 8]].concat()),
            _ => Payload::Raw(self.list(12, Self::byte)),
        }
    }

    fn said(&mut self) -> Said {
        Said::Plain(match self.byte() % 20 {
            0..=2 => return Said::Notify(self.who(), self.words()),
            3 => return Said::BadSend(self.who()),
            4 | 5 => DeskCommand::Add { amount: self.one_of(&[0, 1, 2, u64::MAX]) },
            6 | 7 => DeskCommand::Take { amount: self.below(4) },
            8..=10 => DeskCommand::Shout(self.words()),
            11 => DeskCommand::Note,
            12 => DeskCommand::Roll,
            13 => DeskCommand::Count { word: self.words() },
            14 => DeskCommand::Purge,
            15 => DeskCommand::Double,
            16 => DeskCommand::Rush,
            17 => DeskCommand::Spoil(self.byte() % 2 == 1),
            18 => DeskCommand::Panic,
            _ => DeskCommand::BadReply,
        })
    }

    fn words(&mut self) -> String {
        self.one_of(&["", "a", "some words"]).to_owned()
    }
}
