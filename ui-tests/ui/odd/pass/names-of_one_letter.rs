#![deny(warnings)]
use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum A {
    B { c: u64 },
    C(u64),
}

#[derive(Default, State)]
pub struct M {
    t: u64,
}

#[state_machine(command = A, query = Q, client = C, name = "m")]
impl M {
    fn b(&mut self, c: u64) -> u64 {
        self.t = c;
        c
    }

    fn c(&mut self, _: u64) {}

    #[query]
    fn t(&self, t: u64) -> u64 {
        self.t.max(t)
    }
}

fn main() {
    let mut m = SessionStateMachine::new(M::default());
    assert_eq!(log::ask::<_, u64>(&mut m, &A::B { c: 4 }), 4);
    assert_eq!(log::read::<_, u64>(&m, &Q::T { t: 5 }), 5);
    let c = C::new(log::Local::new(M::default()));
    assert_eq!(log::now(c.c(2)), Ok(()));
    assert_eq!(log::now(c.t(2)), Ok(2));
}

#[path = "../../log.rs"]
mod log;
