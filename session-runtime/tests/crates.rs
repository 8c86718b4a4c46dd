//! Types of common crates, behind features of their names.
#![cfg(all(feature = "client", feature = "rpds", feature = "uuid"))]

use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync, VectorSync};
use session_runtime::client::{InMemory, block_on};
use session_runtime::{SessionStateMachine, State, state_machine};
use uuid::Uuid;

#[state_machine]
enum TicketCommand {
    File { id: Uuid, title: String },
    Close { id: Uuid },
}

#[derive(Default, State)]
struct Tickets {
    #[state(shared, per_entry)]
    open: RedBlackTreeMapSync<Uuid, String>,
    #[state(shared)]
    closed: RedBlackTreeSetSync<Uuid>,
    #[state(shared)]
    journal: VectorSync<String>,
}

#[state_machine(command = TicketCommand)]
impl Tickets {
    fn file(&mut self, id: Uuid, title: String) -> Option<Uuid> {
        self.journal.push_back_mut(format!("filed {title}"));
        let before = self.open.get(&id).map(|_| id);
        self.open.insert_mut(id, title);
        before
    }

    fn close(&mut self, id: Uuid) -> bool {
        self.closed.insert_mut(id);
        self.open.remove_mut(&id)
    }

    #[query]
    fn open_tickets(&self) -> Vec<Uuid> {
        self.open.keys().copied().collect()
    }
}

#[test]
fn uuids_and_persistent_collections_are_wire_values_and_state() {
    let server = InMemory::new(Tickets::default());
    let tickets = TicketsClient::new(server.client());
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    assert_eq!(block_on(tickets.file(one, "leak".to_owned())), Ok(None));
    assert_eq!(block_on(tickets.file(two, "crash".to_owned())), Ok(None));
    assert_eq!(block_on(tickets.close(two)), Ok(true));
    assert_eq!(block_on(tickets.open_tickets()), Ok(vec![one]));
    let snapshot = server.inspect(SessionStateMachine::snapshot).unwrap();
    let keys: Vec<String> = snapshot.dictionary().unwrap().into_keys().collect();
    let user: Vec<&str> = keys.iter().filter_map(|key| key.strip_prefix("user/")).collect();
    assert_eq!(user, ["closed", "journal", "open", "open/1000000000000000000000000000000001"]);
    let restored = SessionStateMachine::<Tickets>::restore(&snapshot).unwrap();
    assert_eq!(restored.machine().journal.len(), 2);
    assert_eq!(restored.snapshot().unwrap().to_bytes(), snapshot.to_bytes());
}
