#![deny(warnings)]
use session_runtime::{Deterministic, State, state_machine};

#[derive(serde::Serialize, serde::Deserialize, Deterministic)]
struct Secret(u64);

#[state_machine]
enum HiddenCommand {
    Keep { secret: Secret },
}

#[derive(Default, State)]
struct Hidden {
    value: u64,
}

#[state_machine(command = HiddenCommand)]
impl Hidden {
    fn keep(&mut self, secret: Secret) -> Secret {
        self.value = secret.0;
        secret
    }

    #[query]
    fn show(&self, than: Secret) -> Secret {
        Secret(self.value.max(than.0))
    }
}

fn main() {
    let mut hidden = Hidden::default();
    hidden.keep(Secret(1));
    let _ = HiddenCommand::Keep { secret: Secret(1) };
}
