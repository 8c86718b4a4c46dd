//! The simulator, on machines that are right and on machines that are not.
#![cfg(feature = "testing")]

#[path = "support/script.rs"]
mod script;
mod support;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use script::{Restoring, play};
use session_runtime::rand_core::Rng;
use session_runtime::testing::{Check, Dice, Failure, check_ids, check_serials};
use session_runtime::{CloseReason, RaftAction, RefuseReason, RequestId, ServerAction, SessionId};
use std::collections::BTreeSet;
use support::{Desk, DeskCommand};

/// Commands of every kind that does not break the desk on purpose.
fn desk_command(dice: &mut Dice) -> DeskCommand {
    match dice.below(10) {
        0..=2 => DeskCommand::Add { amount: dice.below(100) },
        3 => DeskCommand::Take { amount: dice.below(300) },
        4 => DeskCommand::Shout("news".to_owned()),
        5 => DeskCommand::Note,
        6 => DeskCommand::Roll,
        7 => DeskCommand::Count { word: format!("word {}", dice.below(5)) },
        8 => DeskCommand::Purge,
        _ if dice.percent(50) => DeskCommand::Double,
        _ => DeskCommand::Notify { to: SessionId(u128::from(dice.below(9))), text: "lost".to_owned() },
    }
}

#[test]
fn the_desk_keeps_every_rule_in_random_histories() {
    let tally = Check::<Desk, _>::new(desk_command).seeds(0..150).run();
    println!("{tally}");
    for line in tally.to_string().lines() {
        let count = line.split_whitespace().next().and_then(|count| count.parse::<u64>().ok());
        assert!(count > Some(0), "never seen: {line}");
    }
}

#[test]
fn commands_may_come_from_a_strategy() {
    let strategy = prop_oneof![
        (0..100_u64).prop_map(|amount| DeskCommand::Add { amount }),
        "[a-z]{1,4}".prop_map(|word| DeskCommand::Count { word }),
    ];
    let command = |dice: &mut Dice| {
        let mut seed = [0; 32];
        dice.fill_bytes(&mut seed);
        let chance = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), chance);
        strategy.new_tree(&mut runner).unwrap().current()
    };
    let tally = Check::<Desk, _>::new(command).seeds(0..3).run();
    assert!(tally.operations > 100, "{tally}");
}

// Machines that are wrong in ways that neither types nor tokens show. Each must be found, and named.

/// What the check says of a machine, which must be wrong.
macro_rules! caught {
    ($machine:ty, $commands:expr) => {{
        let failure =
            Check::<$machine, _>::new($commands).seeds(0..50).try_run().expect_err("it must be found");
        failure.to_string()
    }};
}

/// A machine of one command, `Poke`, whose handler is given.
macro_rules! machine {
    ($module:ident, |$self:ident, $value:ident| $body:expr) => {
        mod $module {
            use session_runtime::{State, state_machine};

            #[state_machine]
            pub(super) enum PokeCommand {
                Poke { value: u64 },
                Rest,
            }

            #[derive(Default, State)]
            pub(super) struct Poked {
                pub(super) total: u64,
                pub(super) seen: Vec<u64>,
            }

            #[state_machine(command = PokeCommand)]
            impl Poked {
                #[allow(unused_variables)]
                fn poke(&mut self, value: u64) -> u64 {
                    let ($self, $value) = (self, value);
                    $body
                }

                fn rest(&mut self) {}
            }

            pub(super) fn command(dice: &mut super::Dice) -> PokeCommand {
                if dice.percent(70) {
                    PokeCommand::Poke { value: dice.below(1_000) }
                } else {
                    PokeCommand::Rest
                }
            }
        }
    };
}

machine!(right, |this, value| {
    this.seen.push(value);
    this.total = this.total.wrapping_add(value);
    this.total
});

#[test]
fn a_machine_that_is_right_passes() {
    Check::<right::Poked, _>::new(right::command).seeds(0..50).run();
}

/// The first value a hash set gives: another one in every process, and in every set.
fn first_of_a_hash_set(values: &[u64]) -> u64 {
    let set: std::collections::HashSet<u64> = values.iter().copied().collect();
    set.into_iter().next().unwrap_or_default()
}

machine!(hash_order, |this, value| {
    this.seen.push(value);
    this.total = super::first_of_a_hash_set(&this.seen);
    0
});

#[test]
fn a_handler_that_iterates_a_hash_set_through_a_helper_is_found_and_named() {
    let text = caught!(hash_order::Poked, hash_order::command);
    assert!(text.contains("two replicas differ after entry"), "{text}");
    assert!(text.contains("(command `Poke`), in the keys [\"user/total\"]"), "{text}");
    let entries = text.lines().filter(|line| line.contains(" @")).count();
    assert!(entries <= 4, "it takes a session and two values to show: {text}");
}

static COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn next_number() -> u64 {
    COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

machine!(static_counter, |this, _value| {
    this.total = super::next_number();
    0
});

#[test]
fn a_handler_that_counts_in_a_static_is_found_and_named() {
    let text = caught!(static_counter::Poked, static_counter::command);
    assert!(text.contains("(command `Poke`), in the keys [\"user/total\"]"), "{text}");
}

fn nanoseconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or_default()
}

machine!(wall_clock, |_this, _value| super::nanoseconds());

#[test]
fn a_handler_that_reads_the_wall_clock_is_found_and_named() {
    let text = caught!(wall_clock::Poked, wall_clock::command);
    assert!(
        text.contains("two replicas answer entry") && text.contains("(command `Poke`) differently"),
        "{text}"
    );
}

static RARE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Changes once in a thousand calls, whoever calls.
fn thousands() -> u64 {
    RARE.fetch_add(1, std::sync::atomic::Ordering::Relaxed) / 1_000
}

machine!(rare_static, |this, _value| {
    this.total = super::thousands();
    0
});

#[test]
fn a_difference_that_is_rare_is_named_and_its_log_is_called_what_it_is() {
    let text = caught!(rare_static::Poked, rare_static::command);
    assert!(text.contains("in the keys [\"user/total\"]"), "{text}");
    assert!(text.contains("Poke"), "{text}");
    assert!(text.contains("chance outside the seed (hash order, a clock, a static)"), "{text}");
}

static ONCE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Changes once, as a clock of days does, and never again however often the log is replayed.
fn second_day() -> u64 {
    u64::from(ONCE.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 1_000)
}

machine!(rare_clock, |this, _value| {
    this.total = this.total.wrapping_add(super::second_day());
    0
});

#[test]
fn a_difference_that_no_replay_shows_is_named_all_the_same() {
    let text = caught!(rare_clock::Poked, rare_clock::command);
    assert!(text.contains("replicas hold different dictionaries at index "), "{text}");
    assert!(text.contains(", in the keys [\"user/total\"]; at index "), "{text}");
    assert!(text.contains("the commands since then are {\"Poke\""), "{text}");
    assert!(text.contains("not shortened: no replay of it shows a difference"), "{text}");
    assert!(!text.contains("as short as it could be made"), "{text}");
    assert!(text.lines().count() <= 130, "{text}");
    let (last, alike) = (number_after(&text, "dictionaries at index "), number_after(&text, "; at index "));
    assert!(text.contains(&format!("\n{last} @")) && !text.contains(&format!("\n{} @", last + 1)), "{text}");
    assert!(alike < last, "{text}");
}

#[test]
fn of_a_long_log_the_last_entries_are_printed_and_how_many_are_not() {
    let history: Vec<String> = (1..=5_000).map(|index| format!("{index} @1 tick")).collect();
    let history = history.join("\n");
    let (problem, about) = ("it hangs".to_owned(), "the log".to_owned());
    let failure = Failure { seed: 7, operations: 200, problem, about, history };
    let text = failure.to_string();
    assert!(
        text.starts_with("seed 7, 200 operations: it hangs\n\nthe log:\n\n# 4880 lines are left out"),
        "{text}"
    );
    assert!(text.ends_with("\n4999 @1 tick\n5000 @1 tick\n") && text.lines().count() < 130, "{text}");
}

/// The number that follows these words.
fn number_after(text: &str, words: &str) -> u64 {
    let rest = text.split(words).nth(1).expect("the words");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

thread_local! {
    static LAST: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn remember(value: u64) -> u64 {
    LAST.with(|last| last.replace(value))
}

machine!(thread_local, |this, value| {
    this.total = super::remember(value);
    0
});

#[test]
fn a_handler_that_remembers_in_a_thread_local_is_found_and_named() {
    let text = caught!(thread_local::Poked, thread_local::command);
    assert!(text.contains("(command `Poke`), in the keys [\"user/total\"]"), "{text}");
}

fn careful(value: u64) -> u64 {
    assert!(value != 777, "no sevens here");
    value
}

machine!(panic_at_an_odd_value, |_this, value| super::careful(value));

#[test]
fn a_handler_that_panics_at_an_odd_value_is_found_with_the_one_entry_that_shows_it() {
    let mut check = Check::<panic_at_an_odd_value::Poked, _>::new(panic_at_an_odd_value::command);
    let failure = (0..500).find_map(|seed| check.run_seed(seed).err()).expect("it must be found");
    let text = failure.to_string();
    assert!(text.contains("halted at log index 2 in `Poke`: no sevens here"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" @")).count(), 2, "{text}");
}

/// A machine that cannot let a client go.
mod clinging {
    use session_runtime::{Context, State, state_machine};

    #[state_machine]
    pub(super) enum ClingCommand {
        Rest,
    }

    #[derive(Default, State)]
    pub(super) struct Clinging {
        rests: u64,
    }

    #[state_machine(command = ClingCommand)]
    impl Clinging {
        fn rest(&mut self) {
            self.rests = self.rests.wrapping_add(1);
        }

        #[session_closed]
        fn bye(&mut self, cx: &mut Context<'_>) {
            super::cling(cx.session());
        }
    }
}

fn cling(session: Option<SessionId>) {
    assert!(session.is_none(), "stay");
}

#[test]
fn a_hook_that_panics_when_all_sessions_are_closed_is_found_with_the_entry_that_shows_it() {
    // Of these seeds some close a session under way, and the others only at the end.
    let mut check = Check::<clinging::Clinging, _>::new(|_| clinging::ClingCommand::Rest);
    for seed in 0..20 {
        let text = check.run_seed(seed).expect_err("it must be found").to_string();
        let halted = number_after(&text, "halted at log index ");
        let entries: Vec<&str> = text.lines().filter(|line| line.contains(" @")).collect();
        assert_eq!(entries.len() as u64, halted, "{text}");
        assert!(entries.len() <= 3, "{text}");
        assert!(text.contains("in `#[session_closed]`: stay"), "{text}");
    }
}

#[test]
fn the_shortest_history_is_a_scenario_script() {
    let command = |dice: &mut Dice| match dice.below(50) {
        0 => DeskCommand::Panic,
        _ => desk_command(dice),
    };
    let failure = Check::<Desk, _>::new(command).try_run().unwrap_err();
    assert!(failure.history.starts_with(&format!("# seed {}: entry ", failure.seed)), "{failure}");
    let played = play("history", &failure.history, Restoring::AsWritten).unwrap();
    assert!(played.text.contains("\n  -> error: halted at "), "{}", played.text);
    assert!(failure.history.lines().filter(|line| line.contains(" @")).count() <= 2, "{failure}");
}

#[test]
fn every_kind_of_entry_has_its_line_in_a_script() {
    let mut check = Check::<Desk, _>::new(desk_command);
    let mut missing: BTreeSet<&str> =
        "create request ack expire retry keep-alive internal: configure upgrade tick".split(' ').collect();
    for script in (0..1_000).map(|seed| check.script(seed)) {
        let played = play("history", &script, Restoring::AsWritten).unwrap();
        assert!(!played.text.contains("  -> error"), "{}", played.text);
        let entries = script.lines().filter(|line| line.contains(" @"));
        assert_eq!(played.differences.len(), entries.clone().count(), "the player says what comes out");
        for line in entries {
            missing.remove(line.split(' ').nth(2).unwrap_or_default());
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("no history has {missing:?}");
}

/// A value that a snapshot gives back as another: what is skipped comes back as its default.
mod forgetful {
    use serde::{Deserialize, Serialize};
    use session_runtime::{Deterministic, State, state_machine};

    #[derive(Clone, Default, Serialize, Deserialize, Deterministic)]
    pub(super) struct Tip {
        #[serde(skip)]
        odd: u64,
        even: u64,
    }

    #[state_machine]
    pub(super) enum TipCommand {
        Rest,
        Give { value: u64 },
    }

    #[derive(Default, State)]
    pub(super) struct Jar {
        tip: Tip,
    }

    #[state_machine(command = TipCommand)]
    impl Jar {
        fn rest(&mut self) {}

        fn give(&mut self, value: u64) -> u64 {
            self.tip.odd = self.tip.odd.wrapping_add(value & 1);
            self.tip.even = self.tip.even.wrapping_add(value);
            self.tip.odd
        }
    }

    pub(super) fn command(dice: &mut super::Dice) -> TipCommand {
        if dice.percent(50) { TipCommand::Give { value: dice.below(1_000) } } else { TipCommand::Rest }
    }
}

#[test]
fn a_state_that_a_snapshot_does_not_hold_is_found_and_named() {
    let text = caught!(forgetful::Jar, forgetful::command);
    assert!(text.contains("a replica and one that is restored from its snapshot answer entry "), "{text}");
    assert!(text.contains(" (command `Give`) differently"), "{text}");
    let entries = text.lines().filter(|line| line.contains(" @")).count();
    assert!(entries <= 4, "it takes two gifts, of two sessions at most: {text}");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = |seed| Check::<Desk, _>::new(desk_command).run_seed(seed).unwrap();
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}

/// A reply that is written as one thing and read as another.
mod lopsided {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use session_runtime::{Deterministic, State, state_machine};

    #[derive(Deterministic)]
    pub(super) struct Doubled(u64);

    impl Serialize for Doubled {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u64(self.0.wrapping_mul(2))
        }
    }

    impl<'de> Deserialize<'de> for Doubled {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            u64::deserialize(deserializer).map(Self)
        }
    }

    #[state_machine]
    pub(super) enum AskCommand {
        Rest,
        Double { value: u64 },
    }

    #[derive(Default, State)]
    pub(super) struct Asked {
        last: u64,
    }

    #[state_machine(command = AskCommand)]
    impl Asked {
        fn rest(&mut self) {}

        fn double(&mut self, value: u64) -> Doubled {
            self.last = value;
            Doubled(value)
        }
    }

    pub(super) fn command(dice: &mut super::Dice) -> AskCommand {
        if dice.percent(50) { AskCommand::Double { value: dice.below(1_000) } } else { AskCommand::Rest }
    }
}

#[test]
fn a_reply_that_is_read_as_another_is_found_and_named() {
    let text = caught!(lopsided::Asked, lopsided::command);
    assert!(text.contains("the reply of `Double` does not survive encoding"), "{text}");
}

/// A value that for one in a hundred is read as another, and for one in a hundred not at all.
mod lossy {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize};
    use session_runtime::{Context, Deterministic, State, state_machine};

    #[derive(Clone, Default, Serialize, Deterministic)]
    pub(super) struct Lossy(pub(super) u64);

    impl<'de> Deserialize<'de> for Lossy {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            match u64::deserialize(deserializer)? {
                value if value % 100 == 7 => Ok(Self(value.wrapping_sub(7))),
                value if value % 100 == 13 => Err(D::Error::custom("unlucky")),
                value => Ok(Self(value)),
            }
        }
    }

    #[state_machine]
    pub(super) enum LossyCommand {
        Put { value: Lossy },
        Tell { value: u64 },
        Keep { value: u64 },
    }

    #[derive(Default, State)]
    pub(super) struct Lost {
        kept: Lossy,
        total: u64,
    }

    #[state_machine(command = LossyCommand, server_request = Lossy)]
    impl Lost {
        fn put(&mut self, value: Lossy) {
            self.total = self.total.wrapping_add(value.0);
        }

        fn tell(&mut self, cx: &mut Context<'_, Lossy>, value: u64) {
            if let Some(session) = cx.session() {
                cx.send(session, Lossy(value));
            }
        }

        fn keep(&mut self, value: u64) {
            self.kept = Lossy(value);
        }
    }
}

/// Numbers of which one in a hundred has these last digits, and none the other odd ones.
fn number_with(dice: &mut Dice, digits: u64) -> u64 {
    let number = dice.below(1_000);
    if dice.percent(1) { number / 100 * 100 + digits } else { number / 100 * 100 + 50 }
}

#[test]
fn a_command_that_is_not_read_as_it_was_written_is_found_and_named() {
    use lossy::{Lossy, LossyCommand};
    let read_otherwise =
        caught!(lossy::Lost, |dice| LossyCommand::Put { value: Lossy(number_with(dice, 7)) });
    let words = "the command `Put` does not survive encoding: read and written again, it is another";
    assert!(read_otherwise.contains(words), "{read_otherwise}");
    let not_read = caught!(lossy::Lost, |dice| LossyCommand::Put { value: Lossy(number_with(dice, 13)) });
    assert!(not_read.contains("the command `Put` does not survive encoding: "), "{not_read}");
    assert!(not_read.contains("unlucky"), "{not_read}");
}

#[test]
fn a_server_request_that_is_not_read_as_it_was_written_is_found_and_named() {
    for digits in [7, 13] {
        let text =
            caught!(lossy::Lost, |dice| lossy::LossyCommand::Tell { value: number_with(dice, digits) });
        let words = "(command `Tell`): server request 1 of session1, a `Lossy`, does not survive encoding: ";
        assert!(text.contains(words), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains(" @")).count(), 2, "{text}");
    }
}

#[test]
fn a_state_that_a_snapshot_seldom_gives_back_is_found_and_named() {
    for digits in [7, 13] {
        let text =
            caught!(lossy::Lost, |dice| lossy::LossyCommand::Keep { value: number_with(dice, digits) });
        assert!(text.contains("(command `Keep`)") && text.contains("kept"), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains(" @")).count(), 2, "{text}");
    }
}

// What the session layer says, and clients are told, is judged as well: each of these lies is found out.

/// Commands that leave clients with much to acknowledge.
fn loud_command(dice: &mut Dice) -> DeskCommand {
    if dice.percent(70) { DeskCommand::Shout("news".to_owned()) } else { desk_command(dice) }
}

/// The first output that fits is replaced.
fn instead(out: &mut [ServerAction], lie: impl Fn(&ServerAction) -> Option<ServerAction>) {
    if let Some((place, lie)) = out.iter_mut().find_map(|said| lie(said).map(|lie| (said, lie))) {
        *place = lie;
    }
}

/// Sessions closed for one reason are said to be closed for another.
fn other_reason(out: &mut [ServerAction], is: CloseReason, said: CloseReason) {
    instead(out, |action| match action {
        ServerAction::SessionClosed { session, reason } if *reason == is => {
            Some(ServerAction::SessionClosed { session: *session, reason: said })
        }
        _ => None,
    });
}

fn other_refusal(out: &mut [ServerAction], is: RefuseReason, said: RefuseReason) {
    instead(out, |action| match action {
        ServerAction::SessionRefused { session, reason } if *reason == is => {
            Some(ServerAction::SessionRefused { session: *session, reason: said })
        }
        _ => None,
    });
}

type Lie = fn(&RaftAction, &mut Vec<ServerAction>);

#[test]
fn lies_about_sessions_are_found_out() {
    use CloseReason::{Evicted, Expired, Idle, SlowConsumer};
    let lies: [(&str, Lie); 13] = [
        ("closed (Expired) instead of", |_, out| other_reason(out, Evicted, Expired)),
        ("closed (Idle) instead of", |_, out| other_reason(out, Evicted, Idle)),
        ("closed (Evicted) instead of", |_, out| other_reason(out, Idle, Evicted)),
        ("closed (Expired) instead of", |_, out| other_reason(out, Idle, Expired)),
        ("closed (Evicted) instead of", |_, out| other_reason(out, SlowConsumer, Evicted)),
        ("closed (SlowConsumer) instead of", |_, out| other_reason(out, Expired, SlowConsumer)),
        ("(Evicted) instead of nobody", |_, out| {
            if let Some(ServerAction::SendResponse { session, .. }) = out.first() {
                out.push(ServerAction::SessionClosed { session: *session, reason: Evicted });
            }
        }),
        (" had made room", |action, out| {
            if matches!(action, RaftAction::SessionCreationConfirmed { .. }) {
                out.retain(|said| !matches!(said, ServerAction::SessionClosed { reason: Evicted, .. }));
            }
        }),
        ("was to be closed (Expired), and is not", |_, out| {
            out.retain(|said| !matches!(said, ServerAction::SessionClosed { reason: Expired, .. }));
        }),
        ("reason: Stale }) instead of", |_, out| other_refusal(out, RefuseReason::Full, RefuseReason::Stale)),
        ("reason: Full }) instead of", |_, out| other_refusal(out, RefuseReason::Closed, RefuseReason::Full)),
        ("reason: Full }) instead of", |_, out| {
            instead(out, |action| match action {
                ServerAction::SessionCreated { session } => {
                    let reason = RefuseReason::Full;
                    Some(ServerAction::SessionRefused { session: *session, reason })
                }
                _ => None,
            });
        }),
        ("was answered first of all with", |_, out| {
            instead(out, |action| match action {
                ServerAction::SendResponse { session, request, response } => {
                    let (session, response) = (*session, response.clone());
                    let request = RequestId(request.0 + 1);
                    Some(ServerAction::SendResponse { session, request, response })
                }
                _ => None,
            });
        }),
    ];
    for (number, (words, lie)) in lies.into_iter().enumerate() {
        let check = Check::<Desk, _>::new(loud_command).operations(40).seeds(0..1_000).lying(lie);
        let text = check.try_run().expect_err("it must be found").to_string();
        assert!(text.contains(words), "lie {number}: {text}");
    }
}

/// A desk that says one thing in its tables and does another.
mod wayward {
    use super::support::{Desk, DeskCommand, DeskQuery, Notice};
    use serde::{Deserialize, Serialize};
    use session_runtime::schema::{Handler, StateField, Variant};
    use session_runtime::{
        Bytes, Command, Context, Deterministic, EncodeError, Response, Schema, SnapshotError, State,
        StateError, StateMachine, StateReader, StateWriter,
    };

    /// A command that is invalid for one version too long.
    #[derive(Serialize, Deserialize)]
    pub(super) struct Late(pub(super) DeskCommand);

    impl Deterministic for Late {}

    impl Command for Late {
        const VARIANTS: &'static [Variant] = DeskCommand::VARIANTS;

        fn variant(&self) -> usize {
            self.0.variant()
        }

        fn since(&self) -> u32 {
            if self.0 == DeskCommand::Double { 3 } else { 1 }
        }
    }

    #[derive(Default)]
    pub(super) struct Wayward(Desk);

    impl State for Wayward {
        const FIELDS: &'static [StateField] = Desk::<2>::FIELDS;

        fn save(&self, out: &mut StateWriter) -> Result<(), StateError> {
            self.0.save(out)
        }

        fn load(from: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
            Desk::load(from).map(Self)
        }
    }

    impl StateMachine for Wayward {
        type Command = Late;
        type Query = DeskQuery;
        type ServerRequest = Notice;

        const SCHEMA: Schema = Schema {
            handlers: &[Handler { command: "Purge", reply: "u64", internal: true }],
            ..Desk::<2>::SCHEMA
        };

        fn apply(&mut self, cx: &mut Context<'_, Notice>, command: Late) -> Result<Response, EncodeError> {
            self.0.apply(cx, command.0)
        }

        fn query(&self, query: DeskQuery) -> Result<Bytes, EncodeError> {
            self.0.query(query)
        }

        fn is_internal(_: &Late) -> bool {
            false
        }
    }
}

#[test]
fn a_client_that_runs_an_internal_command_is_found() {
    let text = caught!(wayward::Wayward, |_| wayward::Late(DeskCommand::Purge));
    assert!(text.contains("is no command that a client may run now; it ran 1 times"), "{text}");
}

#[test]
fn a_command_that_comes_a_version_late_is_found() {
    let text = caught!(wayward::Wayward, |_| wayward::Late(DeskCommand::Double));
    assert!(text.contains("ran 0 times and was answered with Err(InvalidPayload)"), "{text}");
}

/// A machine that writes down who missed a notice, which is to be closed for it, and refuses to go on with it.
mod watchful {
    use session_runtime::{Context, SessionId, State, state_machine};
    use std::collections::BTreeSet;

    #[state_machine]
    pub(super) enum TellCommand {
        Tell,
    }

    #[derive(Default, State)]
    pub(super) struct Watchful {
        missed: BTreeSet<SessionId>,
    }

    #[state_machine(command = TellCommand, server_request = u64)]
    impl Watchful {
        fn tell(&mut self, cx: &mut Context<'_, u64>) {
            let open: Vec<SessionId> = cx.sessions().collect();
            super::all_are_told(&open, &self.missed);
            for session in open {
                if cx.send(session, 1).is_none() {
                    self.missed.insert(session);
                }
            }
        }

        #[session_closed]
        fn bye(&mut self, cx: &mut Context<'_, u64>) {
            self.missed =
                self.missed.iter().copied().filter(|missed| Some(*missed) != cx.session()).collect();
        }
    }
}

fn all_are_told(open: &[SessionId], missed: &BTreeSet<SessionId>) {
    assert!(open.iter().all(|session| !missed.contains(session)), "one that missed a notice is still there");
}

#[test]
fn whoever_misses_a_notice_is_closed_with_its_entry() {
    let check = Check::<watchful::Watchful, _>::new(|_| watchful::TellCommand::Tell);
    let tally = check.seeds(0..40).run();
    assert!(tally.slow_consumers > 10, "{tally}");
}

// The lighter guarantees.

#[test]
fn the_desk_keeps_every_rule_under_serials_and_under_ids() {
    let serials = check_serials::<Desk>(desk_command);
    let ids = check_ids::<Desk>(desk_command);
    for tally in [serials, ids] {
        println!("{tally}");
        assert!(
            tally.operations > 5_000 && tally.duplicates > 1_000 && tally.leader_changes > 500,
            "{tally}"
        );
        assert!(
            tally.client_crashes > 500 && tally.replica_crashes > 500 && tally.doubled_proposals > 100,
            "{tally}"
        );
    }
}

#[test]
fn a_machine_that_is_wrong_is_found_under_the_lighter_guarantees_too() {
    let serials = std::panic::catch_unwind(|| check_serials::<hash_order::Poked>(hash_order::command));
    let ids = std::panic::catch_unwind(|| check_ids::<static_counter::Poked>(static_counter::command));
    for panic in [serials.unwrap_err(), ids.unwrap_err()] {
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("replicas hold different dictionaries"), "{text}");
        assert!(text.contains("in the keys [\"user/total\"]"), "{text}");
        assert!(text.contains("\nthe whole log:\n"), "{text}");
    }
}
