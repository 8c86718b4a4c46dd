//! Nothing here: the cases are in `ui/`, and `tests/` runs them.
