//! Locks that are bound to sessions: a holder that dies releases what it held, and whoever waits is told.
//!
//! Each grant carries a fencing token, the log position at which it was made. A holder that was only slow, and does not
//! know that its session was closed, may still try to write; the storage it writes to has seen a higher token and
//! refuses. A lock without a token cannot promise that.

use serde::{Deserialize, Serialize};
use session_openraft::{Config, Node, NodeClient};
use session_runtime::{Context, Deterministic, Rejection, SessionId, State, state_machine};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;

/// What clients may ask of the service.
#[state_machine]
enum LockCommand {
    /// Takes a lock; if it is held, waits in line for it.
    Acquire {
        lock: String,
    },
    Release {
        lock: String,
    },
}

/// Tells a client that waited that the lock is now its own.
#[derive(Debug, PartialEq, Serialize, Deserialize, Deterministic)]
struct Granted {
    lock: String,
    token: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Deterministic, Rejection)]
enum Refused {
    /// Somebody has it; a `Granted` comes when it is this client's turn.
    Queued {
        ahead: u64,
    },
    NotYours,
}

#[derive(Default, State)]
struct Locks {
    /// Who waits for each lock. The first has it.
    lines: BTreeMap<String, VecDeque<SessionId>>,
}

#[state_machine(command = LockCommand, server_request = Granted)]
impl Locks {
    /// The fencing token, if the lock was free.
    fn acquire(&mut self, cx: &mut Context<'_, Granted>, lock: String) -> Result<u64, Refused> {
        let Some(session) = cx.session() else { return Err(Refused::NotYours) };
        let line = self.lines.entry(lock).or_default();
        if !line.contains(&session) {
            line.push_back(session);
        }
        match line.iter().position(|waiting| *waiting == session) {
            Some(0) | None => Ok(cx.index()),
            Some(ahead) => Err(Refused::Queued { ahead: ahead as u64 }),
        }
    }

    fn release(&mut self, cx: &mut Context<'_, Granted>, lock: String) -> Result<(), Refused> {
        let session = cx.session();
        if self.lines.get(&lock).and_then(|line| line.front().copied()) != session || session.is_none() {
            return Err(Refused::NotYours);
        }
        self.leave(cx, &lock, session);
        Ok(())
    }

    #[query]
    fn waiting(&self, lock: String) -> u64 {
        self.lines.get(&lock).map_or(0, |line| (line.len() as u64).saturating_sub(1))
    }

    /// A client is gone, whatever the reason: it leaves every line it stood in.
    #[session_closed]
    fn gone(&mut self, cx: &mut Context<'_, Granted>) {
        let session = cx.session();
        let locks: Vec<String> = self.lines.keys().cloned().collect();
        for lock in locks {
            self.leave(cx, &lock, session);
        }
    }
}

impl Locks {
    /// Takes a session out of a line; if it was the first, the next has the lock and is told.
    fn leave(&mut self, cx: &mut Context<'_, Granted>, lock: &str, session: Option<SessionId>) {
        let Some(line) = self.lines.get_mut(lock) else { return };
        let held = line.front().copied() == session;
        line.retain(|waiting| Some(*waiting) != session);
        match line.front() {
            None => drop(self.lines.remove(lock)),
            Some(next) if held => {
                let (next, token) = (*next, cx.index());
                cx.send(next, Granted { lock: lock.to_owned(), token });
            }
            Some(_) => {}
        }
    }
}

/// What the lock protects: it remembers the highest token, and takes nothing that comes with a lower one.
#[derive(Default)]
struct Storage {
    highest: u64,
}

impl Storage {
    fn write(&mut self, token: u64, what: &str) -> String {
        if token < self.highest {
            return format!("refuses `{what}`: token {token} is older than {}", self.highest);
        }
        self.highest = token;
        format!("takes `{what}`, with token {token}")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let node = Node::<Locks>::open_with(Config::in_memory()).await?;
    let mut storage = Storage::default();
    let lock = "ledger".to_owned();

    println!("Ann takes the lock; Bo and Cy stand in line.");
    let ann = node.client().await?;
    let anns_token = LocksClient::new(&ann).acquire(lock.clone()).await?;
    println!("  storage {}", storage.write(anns_token, "Ann was here"));
    let (bo, cy) = (node.client().await?, node.client().await?);
    for (name, client) in [("Bo", &bo), ("Cy", &cy)] {
        let answer = LocksClient::new(client).acquire(lock.clone()).await;
        println!(
            "  {name}: {}",
            answer.map_or_else(|error| error.to_string(), |token| format!("has it, {token}"))
        );
    }

    println!(
        "Ann hangs for so long that her session is closed. The lock goes to Bo, in the same entry of the log."
    );
    drop(ann);
    let bos_token = granted(&bo).await?;
    println!("  storage {}", storage.write(bos_token, "Bo was here"));

    println!("Ann wakes up, and knows nothing of it.");
    println!("  storage {}", storage.write(anns_token, "Ann again"));

    println!("Bo releases the lock, and Cy has it.");
    LocksClient::new(&bo).release(lock.clone()).await?;
    println!("  Cy's token is higher than Bo's: {}", granted(&cy).await? > bos_token);
    println!("  waiting now: {}", LocksClient::new(&cy).waiting(lock).await?);
    node.shutdown().await;
    Ok(())
}

/// The token of the grant that a client waits for.
async fn granted(client: &NodeClient<Locks>) -> Result<u64, Box<dyn Error>> {
    let (_, Granted { token, .. }) = client.server_request().await.ok_or("the session is over")?;
    Ok(token)
}
