// Every group of rustc's lints denied, those that are silent by default too.
#![deny(
    warnings,
    unused,
    future_incompatible,
    nonstandard_style,
    rust_2018_idioms,
    let_underscore
)]
#![deny(
    unused_qualifications,
    unused_lifetimes,
    unused_results,
    single_use_lifetimes,
    trivial_casts
)]
#![deny(
    elided_lifetimes_in_paths,
    explicit_outlives_requirements,
    non_ascii_idents,
    redundant_lifetimes
)]
#![deny(
    trivial_numeric_casts,
    unused_import_braces,
    unused_macro_rules,
    variant_size_differences
)]
#![deny(
    ambiguous_negative_literals,
    absolute_paths_not_starting_with_crate,
    unit_bindings,
    unnameable_types
)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Add { amount: u64 },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    #[query]
    fn above(&self, amount: u64) -> bool {
        self.value > amount
    }

    #[session_created]
    fn created(&mut self) {}
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 4);
    assert!(log::read::<_, bool>(
        &log::again(&counter),
        &CounterQuery::Above { amount: 1 }
    ));
    let client = CounterClient::new(log::Local::new(Counter::default()));
    assert_eq!(log::now(client.add(2)), Ok(2));
}

#[path = "../../log.rs"]
mod log;
