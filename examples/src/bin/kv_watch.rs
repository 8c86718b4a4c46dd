//! A key-value store with watches: server requests, values that expire, and an internal command that purges them.
//!
//! A watcher is told of every change of its keys, once each and in order. A value may be put for a time, and the time
//! is the log's: it is gone at the same entry on every replica, when the service appends a `Purge`. No replica looks
//! at a clock of its own.

use serde::{Deserialize, Serialize};
use session_openraft::{Config, Node};
use session_runtime::{Context, Deterministic, SessionId, State, Timestamp, codec, state_machine};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

/// What clients may ask of the store.
#[state_machine]
enum KvCommand {
    /// Puts a value, for so many milliseconds if a time is given.
    Put {
        key: String,
        value: String,
        lives: Option<u64>,
    },
    Delete {
        key: String,
    },
    /// From now on, tell this client of every change below a prefix.
    Watch {
        prefix: String,
    },
    /// The service's own: removes what has expired, at most so many values.
    Purge {
        limit: u32,
    },
}

/// What the store tells a watcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic)]
enum Change {
    Put { key: String, value: String },
    Deleted { key: String },
    Expired { key: String },
}

impl Change {
    fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Deleted { key } | Self::Expired { key } => key,
        }
    }
}

#[derive(Default, State)]
struct Kv {
    /// The values, each with the moment until which it lives.
    values: BTreeMap<String, (String, Option<Timestamp>)>,
    /// The keys that expire, soonest first, so that a purge looks at nothing else.
    expiring: BTreeSet<(Timestamp, String)>,
    watchers: BTreeMap<SessionId, BTreeSet<String>>,
}

#[state_machine(command = KvCommand, server_request = Change)]
impl Kv {
    fn put(&mut self, cx: &mut Context<'_, Change>, key: String, value: String, lives: Option<u64>) {
        self.take(&key);
        let until = lives.map(|lives| cx.now().saturating_add(lives));
        self.expiring.extend(until.map(|until| (until, key.clone())));
        self.values.insert(key.clone(), (value.clone(), until));
        self.tell(cx, &Change::Put { key, value });
    }

    fn delete(&mut self, cx: &mut Context<'_, Change>, key: String) -> bool {
        let there = self.take(&key);
        if there {
            self.tell(cx, &Change::Deleted { key });
        }
        there
    }

    fn watch(&mut self, cx: &mut Context<'_, Change>, prefix: String) {
        if let Some(session) = cx.session() {
            self.watchers.entry(session).or_default().insert(prefix);
        }
    }

    /// How many were purged. A limited number, so that no entry takes long; the service asks again while there are more.
    #[internal]
    fn purge(&mut self, cx: &mut Context<'_, Change>, limit: u32) -> u32 {
        let mut purged = 0;
        while purged < limit {
            match self.expiring.first() {
                Some((until, key)) if *until <= cx.now() => {
                    let key = key.clone();
                    self.take(&key);
                    self.tell(cx, &Change::Expired { key });
                    purged = purged.saturating_add(1);
                }
                _ => break,
            }
        }
        purged
    }

    #[query]
    fn get(&self, key: String) -> Option<String> {
        self.values.get(&key).map(|(value, _)| value.clone())
    }

    #[session_closed]
    fn forget(&mut self, cx: &mut Context<'_, Change>) {
        if let Some(session) = cx.session() {
            self.watchers.remove(&session);
        }
    }
}

impl Kv {
    /// Removes a key and its expiry; whether it was there.
    fn take(&mut self, key: &str) -> bool {
        let taken = self.values.remove(key);
        if let Some((_, Some(until))) = taken {
            self.expiring.remove(&(until, key.to_owned()));
        }
        taken.is_some()
    }

    fn tell(&self, cx: &mut Context<'_, Change>, change: &Change) {
        for (session, prefixes) in &self.watchers {
            if prefixes.iter().any(|prefix| change.key().starts_with(prefix)) {
                cx.send(*session, change.clone());
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let node = Node::<Kv>::open_with(Config::in_memory()).await?;
    let watching = node.client().await?;
    let watcher = KvClient::new(&watching);
    let writer = KvClient::new(node.client().await?);

    println!("One client watches what is below `lamp/`; another writes.");
    watcher.watch("lamp/".to_owned()).await?;
    writer.put("lamp/kitchen".to_owned(), "on".to_owned(), None).await?;
    writer.put("door".to_owned(), "open".to_owned(), None).await?;
    writer.put("lamp/porch".to_owned(), "on".to_owned(), Some(100)).await?;
    writer.delete("lamp/kitchen".to_owned()).await?;
    for _ in 0..3 {
        println!("  the watcher hears: {}", heard(&watching).await?);
    }

    println!("The porch lamp was put for 100 milliseconds. They pass, and the service purges.");
    tokio::time::sleep(Duration::from_millis(150)).await;
    let response = node.internal(&KvCommand::Purge { limit: 1_000 }).await?;
    println!("  purged: {}", codec::decode::<u32>(&response.payload)?);
    println!("  the watcher hears: {}", heard(&watching).await?);
    println!("  and reads: {:?}", watcher.get("lamp/porch".to_owned()).await?);

    println!("The watcher leaves; the store forgets that it watched.");
    watching.close().await;
    writer.put("lamp/hall".to_owned(), "on".to_owned(), None).await?;
    println!("  watchers left: {}", node.inspect(|kv| kv.machine().watchers.len()));
    node.shutdown().await;
    Ok(())
}

async fn heard(client: &session_openraft::NodeClient<Kv>) -> Result<String, Box<dyn Error>> {
    let (number, change) = client.server_request().await.ok_or("the session is over")?;
    Ok(format!("{}. {change:?}", number.0))
}
