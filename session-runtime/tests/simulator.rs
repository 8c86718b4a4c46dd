//! The simulator, on machines that are right and on machines that are not.
#![cfg(feature = "testing")]

mod support;

use session_runtime::SessionId;
use session_runtime::testing::{Check, Dice};
use support::{Desk, DeskCommand};

/// Commands of every kind that does not break the desk on purpose.
fn desk_command(dice: &mut Dice) -> DeskCommand {
    match dice.below(9) {
        0..=2 => DeskCommand::Add { amount: dice.below(100) },
        3 => DeskCommand::Take { amount: dice.below(300) },
        4 => DeskCommand::Shout("news".to_owned()),
        5 => DeskCommand::Note,
        6 => DeskCommand::Roll,
        7 => DeskCommand::Count { word: format!("word {}", dice.below(5)) },
        _ if dice.percent(50) => DeskCommand::Double,
        _ => DeskCommand::Notify { to: SessionId(u128::from(dice.below(9))), text: "lost".to_owned() },
    }
}

#[test]
fn the_desk_keeps_every_rule_in_random_histories() {
    let tally = Check::<Desk, _>::new(desk_command).seeds(0..60).run();
    println!("{tally}");
}
