// An impl block made by `macro_rules!`: names, types, literals and bodies are fragments.
#![deny(warnings)]

use session_runtime::{Context, SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Add { amount: u64 },
    Reset,
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

macro_rules! machine {
    ($state:ident answers $command:ty as $name:literal at $version:literal, client $client:ident;
     $vis:vis $add:ident($amount:ident: $type:ty) -> $reply:ty, $body:expr; $reset:ident $block:block) => {
        #[state_machine(command = $command, name = $name, version = $version, client = $client)]
        impl $state {
            $vis fn $add(&mut self, $amount: $type) -> $reply {
                let add: fn(u64, u64) -> u64 = $body;
                self.value = add(self.value, $amount);
                self.value
            }

            fn $reset(&mut self, cx: &mut Context<'_>) {
                let _ = cx;
                self.value = $block;
            }

            #[query]
            fn value(&self, $amount: $type) -> ($reply, $type) {
                (self.value, $amount)
            }
        }
    };
}

machine! {
    Counter answers Command as "adder" at 3, client Remote;
    pub add(amount: u64) -> u64, |value, amount| value.saturating_add(amount); reset { 0 }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 4);
    assert_eq!(
        log::read::<_, (u64, u64)>(&counter, &CounterQuery::Value { amount: 1 }),
        (4, 1)
    );
    log::ask::<_, ()>(&mut counter, &Command::Reset);
    assert_eq!((Counter::SCHEMA.name, Counter::SCHEMA.version), ("adder", 3));
    assert_eq!(
        Counter::SCHEMA.handler("Add").map(|handler| handler.reply),
        Some("u64")
    );
    let client = Remote::new(log::Local::new(Counter::default()));
    assert_eq!(log::now(client.add(2)), Ok(2));
}

#[path = "../../log.rs"]
mod log;
