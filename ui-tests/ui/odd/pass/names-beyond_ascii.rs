// Names beyond ASCII, with digits, and of one letter.
#![deny(warnings)]

use session_runtime::{Command as _, SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Befehl {
    Überweise { größe: u64 },
    A,
    V2,
    HTTPGet,
    Öffne2Türen(u64),
}

#[derive(Default, State)]
pub struct Zähler {
    größe: u64,
}

#[state_machine(command = Befehl)]
impl Zähler {
    fn überweise(&mut self, größe: u64) -> u64 {
        self.größe = self.größe.saturating_add(größe);
        self.größe
    }
    fn a(&mut self) {}
    fn v2(&mut self) {}
    fn h_t_t_p_get(&mut self) {}
    fn öffne2_türen(&mut self, türen: u64) -> u64 {
        türen
    }

    #[query]
    fn größe(&self) -> u64 {
        self.größe
    }
}

fn main() {
    let mut zähler = SessionStateMachine::new(Zähler::default());
    assert_eq!(
        log::ask::<_, u64>(&mut zähler, &Befehl::Überweise { größe: 4 }),
        4
    );
    assert_eq!(log::ask::<_, u64>(&mut zähler, &Befehl::Öffne2Türen(2)), 2);
    assert_eq!(
        log::read::<_, u64>(&log::again(&zähler), &ZählerQuery::Größe {}),
        4
    );
    for (befehl, name) in [(Befehl::A, "A"), (Befehl::V2, "V2"), (Befehl::HTTPGet, "HTTPGet")] {
        log::ask::<_, ()>(&mut zähler, &befehl);
        assert_eq!(befehl.name(), name);
    }
    assert!(
        zähler
            .snapshot()
            .unwrap()
            .dictionary()
            .unwrap()
            .contains_key("user/größe")
    );
}

#[path = "../../log.rs"]
mod log;
