//! A machine that gains a command and a state field while it runs, without a moment at which two replicas disagree.
//!
//! A shop keeps a stock. Its next build adds a command, `Reserve`, a state field for it, and another rule for an old
//! command. The program runs both builds side by side on one log, as a cluster does while it is rolled out, and shows
//! what each says before, at and behind the entry that switches the version. `schema/shop.txt` is the schema file that
//! keeps the two compatible; the tests below compare both builds, and one careless one, with it.

use session_runtime::{
    ApplyError, Command, RaftAction, Response, ServerAction, SessionStateMachine, Snapshot, Timestamp, codec,
};
use std::error::Error;

/// The build that runs everywhere today.
mod before {
    use session_runtime::{State, state_machine};
    use std::collections::BTreeMap;

    #[state_machine]
    pub(crate) enum ShopCommand {
        Deliver { item: String, count: u64 },
        Sell { item: String },
    }

    #[derive(Default, State)]
    pub(crate) struct Shop {
        stock: BTreeMap<String, u64>,
    }

    #[state_machine(command = ShopCommand)]
    impl Shop {
        fn deliver(&mut self, item: String, count: u64) -> u64 {
            let stock = self.stock.entry(item).or_default();
            *stock = stock.saturating_add(count);
            *stock
        }

        fn sell(&mut self, item: String) -> bool {
            match self.stock.get_mut(&item) {
                Some(stock) if *stock > 0 => {
                    *stock = stock.saturating_sub(1);
                    true
                }
                _ => false,
            }
        }
    }
}

/// The build that replaces it.
mod after {
    use session_runtime::{Context, State, state_machine};
    use std::collections::BTreeMap;

    #[state_machine]
    pub(crate) enum ShopCommand {
        Deliver {
            item: String,
            count: u64,
        },
        Sell {
            item: String,
        },
        #[since = 2]
        Reserve {
            item: String,
        },
    }

    #[derive(Default, State)]
    pub(crate) struct Shop {
        stock: BTreeMap<String, u64>,
        /// How many of the stock are spoken for.
        #[since = 2]
        reserved: BTreeMap<String, u64>,
    }

    #[state_machine(command = ShopCommand)]
    impl Shop {
        fn deliver(&mut self, item: String, count: u64) -> u64 {
            let stock = self.stock.entry(item).or_default();
            *stock = stock.saturating_add(count);
            *stock
        }

        /// From version 2 on, what is reserved is not sold. Entries before the switch replay as they did.
        fn sell(&mut self, cx: &mut Context<'_>, item: String) -> bool {
            let kept = if cx.version() >= 2 { self.reserved.get(&item).copied().unwrap_or(0) } else { 0 };
            match self.stock.get_mut(&item) {
                Some(stock) if *stock > kept => {
                    *stock = stock.saturating_sub(1);
                    true
                }
                _ => false,
            }
        }

        fn reserve(&mut self, item: String) -> bool {
            let reserved = self.reserved.entry(item.clone()).or_default();
            let free = self.stock.get(&item).is_some_and(|stock| stock > reserved);
            *reserved = reserved.saturating_add(u64::from(free));
            free
        }
    }
}

type Old = SessionStateMachine<before::Shop>;
type New = SessionStateMachine<after::Shop>;

/// What an entry gave, in words.
fn told(applied: &Result<Vec<ServerAction>, ApplyError>) -> String {
    match applied.as_deref() {
        Ok([ServerAction::InternalResponse { result: Ok(Response { payload, .. }) }]) => {
            codec::decode::<bool>(payload)
                .map_or_else(|_| format!("{payload:?}"), |answer| format!("`{answer}`"))
        }
        Ok([ServerAction::InternalResponse { result: Err(error) }]) => format!("no: {error}"),
        Ok([]) => "done".to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("stops: {error}"),
    }
}

/// The keys of the shop's own state in a snapshot.
fn fields(snapshot: &Snapshot) -> Result<String, Box<dyn Error>> {
    let keys: Vec<String> =
        snapshot.dictionary()?.into_keys().filter(|key| key.starts_with("user/")).collect();
    Ok(format!("version {}, {}", snapshot.meta().version, keys.join(", ")))
}

fn main() -> Result<(), Box<dyn Error>> {
    // A command's bytes are the same in both builds, so one log serves both.
    let internal = |payload| RaftAction::InternalCommand { payload };
    let deliver = internal(after::ShopCommand::Deliver { item: "lamp".to_owned(), count: 2 }.encode());
    let sell = internal(after::ShopCommand::Sell { item: "lamp".to_owned() }.encode());
    let reserve = internal(after::ShopCommand::Reserve { item: "lamp".to_owned() }.encode());
    let switch = RaftAction::Upgrade { version: 2 };

    println!("Two replicas run the old build. Two lamps are delivered: entry 1.");
    let mut old = Old::new(before::Shop::default());
    old.apply(1, Timestamp(0), deliver)?;
    let stored = old.snapshot()?.to_bytes()?;

    println!("One of them is restarted with the new build, from the snapshot of the old one.");
    let mut new = New::restore(&Snapshot::from_bytes(&stored)?)?;
    println!("  old build: {}", fields(&old.snapshot()?)?);
    println!("  new build: {}", fields(&new.snapshot()?)?);
    println!(
        "  and the old build can read what the new one writes: {}",
        Old::restore(&new.snapshot()?).is_ok()
    );

    println!("Somebody is early and reserves a lamp: entry 2. No replica may know the command yet.");
    println!("  old build: {}", told(&old.apply(2, Timestamp(0), reserve.clone())));
    println!("  new build: {}", told(&new.apply(2, Timestamp(0), reserve.clone())));

    println!("The operators switch to version 2: entry 3. A replica that was forgotten must not guess.");
    println!("  old build: {}", told(&old.apply(3, Timestamp(0), switch.clone())));
    println!("  new build: {}", told(&new.apply(3, Timestamp(0), switch.clone())));

    println!("A lamp is reserved: entry 4. One is sold: entry 5. The other is spoken for: entry 6.");
    for (index, action) in [(4, &reserve), (5, &sell), (6, &sell)] {
        println!("  new build: {}", told(&new.apply(index, Timestamp(0), action.clone())));
    }
    println!("  new build: {}", fields(&new.snapshot()?)?);
    let refused = Old::restore(&new.snapshot()?).err().map(|error| error.to_string()).unwrap_or_default();
    println!("  old build, given that snapshot: {refused}");

    println!("The forgotten replica gets the new build, and goes on where it stopped, at entry 3.");
    let mut late = New::restore(&old.snapshot()?)?;
    for (index, action) in [(3, switch), (4, reserve), (5, sell.clone()), (6, sell)] {
        late.apply(index, Timestamp(0), action)?;
    }
    println!(
        "  both replicas hold the same: {}",
        late.snapshot()?.to_bytes()? == new.snapshot()?.to_bytes()?
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use session_runtime::schema::assert_unchanged;
    use session_runtime::{State, state_machine};

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/shop.txt");

    #[test]
    fn the_file_is_the_schema_of_the_old_build() {
        assert_unchanged::<super::before::Shop>(FILE);
    }

    /// It prints a note that the file may be brought up to date, which this example does not do.
    #[test]
    fn the_new_build_is_a_safe_change() {
        assert_unchanged::<super::after::Shop>(FILE);
    }

    /// A build whose author forgot about the logs of today.
    #[state_machine]
    enum ShopCommand {
        Sell { item: String },
        Deliver { item: String, count: u64 },
    }

    #[derive(Default, State)]
    struct Shop {
        stock: u64,
    }

    #[state_machine(command = ShopCommand)]
    impl Shop {
        fn sell(&mut self, _item: String) -> bool {
            self.stock > 0
        }

        fn deliver(&mut self, _item: String, count: u64) -> u64 {
            self.stock = count;
            count
        }
    }

    #[test]
    #[should_panic(expected = "command 0")]
    fn a_careless_build_fails_before_it_meets_a_log() {
        assert_unchanged::<Shop>(FILE);
    }
}
