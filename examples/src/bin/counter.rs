//! The smallest machine: a counter whose clients may send again without adding twice.
//!
//! It plays a short log by itself - a lost answer, a retry, a restart from a snapshot - and says what happens.

use session_runtime::{
    Command, RaftAction, RequestId, ServerAction, ServerRequestId, SessionId, SessionStateMachine, Snapshot,
    State, Timestamp, codec, state_machine,
};
use std::collections::BTreeMap;
use std::error::Error;

/// What clients may ask of the counter.
#[state_machine]
enum CounterCommand {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

/// What a log entry does when it is applied, in words.
fn told(actions: &[ServerAction]) -> Result<String, Box<dyn Error>> {
    Ok(match actions {
        [ServerAction::SessionCreated { .. }] => "the session is open".to_owned(),
        [ServerAction::SendResponse { response, .. }] => {
            format!("the answer is {}", codec::decode::<u64>(&response.payload)?)
        }
        other => format!("{other:?}"),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut counter = SessionStateMachine::new(Counter::default());
    let session = SessionId::draw(0, 0x5eed_5eed_5eed_5eed);

    println!("A client registers: entry 1 of the log.");
    let register = RaftAction::SessionCreationConfirmed { session, capabilities: BTreeMap::new() };
    println!("  {}", told(&counter.apply(1, Timestamp(0), register)?)?);

    let add_five = RaftAction::ClientRequest {
        session,
        request: RequestId(1),
        lowest_pending: RequestId(1),
        acked: ServerRequestId(0),
        payload: CounterCommand::Add { amount: 5 }.encode(),
    };
    println!("It asks to add 5, as its request number 1: entry 2.");
    println!("  {}", told(&counter.apply(2, Timestamp(100), add_five.clone())?)?);
    println!("  ... but the network loses the answer.");

    println!("The client times out and sends request 1 again: entry 3.");
    println!("  {}", told(&counter.apply(3, Timestamp(5_000), add_five.clone())?)?);
    println!("  the counter stands at {}: the command ran once.", counter.machine().value);

    println!("The server restarts from a snapshot.");
    let stored = counter.snapshot()?.to_bytes()?;
    let mut counter = SessionStateMachine::<Counter>::restore(&Snapshot::from_bytes(&stored)?)?;
    println!("  {} bytes hold the counter and what its clients were told", stored.len());

    println!("A copy of request 1 that was delayed in the network arrives: entry 4.");
    println!("  {}", told(&counter.apply(4, Timestamp(9_000), add_five)?)?);
    println!("  the counter stands at {}: still once.", counter.machine().value);
    Ok(())
}
