//! What a fuzzer runs, and an ordinary test over fixed inputs: each target takes any bytes, and panics where a rule is
//! broken.
#![allow(dead_code, unreachable_pub)] // each test binary is a crate of its own and uses its part

mod commands;
mod entries;
mod histories;
mod snapshots;
pub mod vault;
mod wire;

/// Takes any bytes, and panics where a rule is broken.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const ALL: [(&str, Target); 5] = [
    ("commands", commands::run),
    ("wire", wire::run),
    ("entries", entries::run),
    ("snapshots", snapshots::run),
    ("histories", histories::run),
];

/// The target of this name.
pub fn target(name: &str) -> Target {
    let (_, target) = ALL.into_iter().find(|(known, _)| *known == name).expect("there is such a target");
    target
}

/// Cuts an input into pieces, each behind its length in two bytes. The last may be shorter than it says.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (piece, behind) = after.split_at(length);
        rest = behind;
        Some(piece)
    })
}
