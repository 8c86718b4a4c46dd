//! Nothing here: `tests/` runs what the other crates have, in this edition.
