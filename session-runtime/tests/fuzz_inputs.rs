//! What the fuzzer runs, run over the seeds that are kept and over fixed inputs: bytes of a generator, and seeds with
//! changes. `fuzz/` runs the same code for as long as one likes.

mod model;
mod support;
mod targets;

use std::fs;
use std::path::Path;
use support::Dice;
use targets::{ALL, Target};

/// How many inputs each target gets beside the seeds.
const INPUTS: usize = 3_000;

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(name);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Random bytes, few values more often than others, so that tags and lengths are hit.
fn random(dice: &mut Dice) -> Vec<u8> {
    let (length, bound) = (1 + dice.below(120), [3, 16, 256][dice.below(3)]);
    (0..length).map(|_| u8::try_from(dice.below(bound)).unwrap()).collect()
}

/// A seed with a few bytes changed, taken out, put in or repeated.
fn changed(dice: &mut Dice, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        let until = bytes.len().min(at + dice.below(9));
        let byte = u8::try_from(dice.below(256)).unwrap();
        match dice.below(5) {
            0 if at < bytes.len() => bytes[at] = byte,
            1 if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
            2 => bytes.insert(at, byte),
            3 => drop(bytes.drain(at..until)),
            _ => bytes.extend_from_within(at..until),
        }
    }
    bytes
}

fn run_all(name: &str, target: Target) {
    let seeds = seeds(name);
    assert!(seeds.len() >= 10, "{} seeds of {name}", seeds.len());
    for seed in &seeds {
        run(name, target, seed);
    }
    let mut dice = Dice(0x5eed);
    for number in 0..INPUTS {
        let input = if number % 4 == 0 {
            random(&mut dice)
        } else {
            let seed = &seeds[dice.below(seeds.len())];
            changed(&mut dice, seed)
        };
        run(name, target, &input);
    }
}

/// Runs one input; if it fails, says which.
fn run(name: &str, target: Target, input: &[u8]) {
    let result = std::panic::catch_unwind(|| target(input));
    assert!(result.is_ok(), "the target `{name}` fails on {input:?}");
}

#[test]
fn every_target_holds_on_its_seeds_and_on_fixed_inputs() {
    std::thread::scope(|threads| {
        for (name, target) in ALL {
            threads.spawn(move || run_all(name, target));
        }
    });
}
