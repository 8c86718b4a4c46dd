//! Any bytes as a history: the real machine and the naive model agree on it, at every cut.

use crate::model::history::from_bytes::history;
use crate::model::pair::{Straight, agree, quiet_desk};

pub fn run(bytes: &[u8]) {
    quiet_desk();
    let Some((first, rest)) = bytes.split_first() else { return };
    let history = history(rest);
    if first % 4 == 3 {
        agree::<1>(&history);
        return;
    }
    agree::<2>(&history);
    let straight = Straight::new(&history);
    straight.check_restored_before(usize::from(first / 4) % straight.len());
}
