#![deny(warnings)]
use session_runtime::{Command, Query, State, state_machine};

#[state_machine]
pub enum r#Do {
    Match { r#type: u64, r#fn: u64 },
    r#Type(u64),
    Loop,
}

#[derive(Default, State)]
pub struct r#Struct {
    r#type: u64,
    #[state(was = "fn")]
    r#impl: u64,
}

#[state_machine(command = r#Do)]
impl r#Struct {
    fn r#match(&mut self, r#type: u64, _fn: u64) -> u64 {
        self.r#type = r#type;
        self.r#impl
    }

    fn r#type(&mut self, r#loop: u64) -> u64 {
        r#loop
    }

    fn r#loop(&mut self) {}

    #[query]
    fn r#where(&self, r#in: u64) -> u64 {
        self.r#type.max(r#in)
    }
}

fn main() {
    assert_eq!(r#Do::Match { r#type: 1, r#fn: 2 }.name(), "Match");
    assert_eq!(Struct::SCHEMA.state[0].name, "type");
    let _ = StructQuery::Where { r#in: 1 }.encode();
}
