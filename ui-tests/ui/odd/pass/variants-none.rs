#![deny(warnings)]
use session_runtime::{State, state_machine};

#[state_machine]
pub enum Nothing {}

#[derive(Default, State)]
pub struct Idle {}

#[derive(Default, State)]
pub struct Unit;

#[state_machine(command = Nothing)]
impl Idle {}

#[state_machine(command = Nothing)]
impl Unit {
    #[query]
    fn is_idle(&self) -> bool {
        true
    }
}

fn main() {
    let _ = IdleClient::<()>::SIZE;
}

trait Size: Sized {
    const SIZE: usize = size_of::<Self>();
}
impl<C> Size for IdleClient<C> {}
