#![allow(dead_code)]
use session_runtime::{Deterministic, State, state_machine};

macro_rules! own {
    ($($name:ident)*) => {$(
        #[derive(Default, serde::Serialize, serde::Deserialize, Deterministic)]
        pub struct $name;
    )*};
}
own!(Option Vec String Box Result Iterator Default2 Send Sync Future Into);

#[allow(non_snake_case)]
fn Some() {}
#[allow(non_snake_case)]
fn Ok() {}
#[allow(non_snake_case)]
fn Err() {}
#[allow(non_snake_case)]
fn None() {}

#[state_machine]
pub enum CounterCommand {
    Add { amount: Option, more: Vec },
    Take(String, Box),
}

#[derive(Default, State)]
pub struct Counter {
    value: Option,
    #[state(was = "before")]
    text: String,
    #[since = 2]
    list: Vec,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, amount: Option, more: Vec) -> String {
        let _ = (amount, more);
        String
    }

    fn take(&mut self, _text: String, _: Box) -> Option {
        Option
    }

    #[query]
    fn list(&self, from: Option) -> Vec {
        let _ = from;
        Vec
    }
}

fn main() {}
