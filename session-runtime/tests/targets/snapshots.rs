//! Any bytes as a snapshot of each kind and as a table. What a mutation breaks first is a checksum; so a second reading
//! mends them, and a third puts any values under keys that are there.

use super::pieces;
use super::vault::{Node, Vault, VaultCommand};
use crate::support::{
    Log, alive, configure, create, create_with, expire, forge, id, keep_alive, request_with, retry, upgrade,
};
use session_runtime::ids::{Id, IdAction, IdStateMachine, IdTable};
use session_runtime::serials::{ClientId, SerialAction, SerialKey, SerialStateMachine, SerialTable};
use session_runtime::{
    ApplyError, Command, Limits, RaftAction, Response, SessionId, SessionStateMachine, Snapshot, Timestamp,
};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub fn run(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    match how % 3 {
        0 => read(rest),
        1 => read(&mended(rest)),
        _ => overlaid(how / 3, rest),
    }
}

fn read(bytes: &[u8]) {
    let read = Snapshot::from_bytes(bytes);
    let streamed = Snapshot::read_from(bytes);
    assert_eq!(read.as_ref().map(Snapshot::meta).err(), streamed.as_ref().map(Snapshot::meta).err());
    if let Ok(snapshot) = read {
        assert_eq!(snapshot.to_bytes().unwrap(), bytes, "one snapshot, one byte form");
        restore(&snapshot);
    }
    if let Ok(table) = SerialTable::from_bytes(bytes) {
        assert_eq!(SerialTable::from_bytes(&table.to_bytes()), Ok(table));
    }
    if let Ok(table) = IdTable::<Response>::from_bytes(bytes) {
        assert_eq!(IdTable::from_bytes(&table.to_bytes().unwrap()), Ok(table));
    }
}

/// The same bytes, with the right checksum behind the header and behind each block, as far as there are blocks.
fn mended(bytes: &[u8]) -> Vec<u8> {
    const HEADER: usize = 12;
    let mut out = Vec::new();
    let mut rest = bytes;
    let mut checksum = 0;
    let mut length = HEADER;
    while rest.len() >= length + 8 {
        let (block, behind) = rest.split_at(length);
        checksum = xxh3_64_with_seed(block, checksum);
        out.extend(block);
        out.extend(checksum.to_le_bytes());
        rest = &behind[8..];
        let claimed = rest.get(1..9).and_then(|length| length.first_chunk::<8>());
        let Some(claimed) = claimed.map(|length| u64::from_le_bytes(*length)) else { break };
        length = usize::try_from(claimed).unwrap_or(usize::MAX).saturating_add(9).min(usize::MAX / 2);
    }
    out.extend(rest);
    out
}

/// A sound snapshot with some of its values replaced: pairs of a key, or the number of one, and a value.
fn overlaid(kind: u8, bytes: &[u8]) {
    let snapshot = sound(kind);
    let mut dictionary = snapshot.dictionary().unwrap();
    let keys: Vec<String> = dictionary.keys().cloned().collect();
    let mut pieces = pieces(bytes);
    while let (Some(key), Some(value)) = (pieces.next(), pieces.next()) {
        let key = match key {
            [number] => keys[usize::from(*number) % keys.len()].clone(),
            key => String::from_utf8_lossy(key).into_owned(),
        };
        dictionary.insert(key, value.to_vec().into());
    }
    restore(&forge(&snapshot, &dictionary));
}

/// A snapshot of each kind of machine, with something in every part of it.
fn sound(kind: u8) -> Snapshot {
    static SOUND: LazyLock<[Snapshot; 3]> = LazyLock::new(|| [of_sessions(), of_serials(), of_ids()]);
    SOUND[usize::from(kind) % 3].clone()
}

pub fn of_sessions() -> Snapshot {
    let mut log = Log::<Vault>::new();
    let capabilities = [("name", "ann"), ("greet", "yes")];
    let (ann, ben, cid) = (id(1), id(2), id(3));
    let limits = Limits { idle_timeout: Some(500), max_pending_requests: Some(9), ..Limits::default() };
    for action in [create_with(ann, &capabilities), create(ben), create(cid), configure(limits)] {
        log.apply_at(10, action);
    }
    for (number, command) in (1..).zip(commands(ben)) {
        log.apply(request_with(ann, number, 1, 0, command.encode()));
    }
    log.apply(request_with(ben, 1, 1, 0, vec![0xff].into()));
    log.apply(expire(cid));
    log.apply(upgrade(2));
    log.machine.snapshot().unwrap()
}

pub fn of_serials() -> Snapshot {
    let mut machine = SerialStateMachine::new(Vault::default());
    let clients = [ClientId::from("shop"), ClientId::auto("node-1", 7), ClientId::auto("node-2", 8)];
    for (index, (client, command)) in (1..).zip(clients.iter().cycle().zip(commands(id(1)))) {
        let key = Some(SerialKey { client: client.clone(), serial: index });
        machine
            .apply(index, Timestamp(10), SerialAction::Command { key, payload: command.encode() })
            .unwrap();
    }
    machine.snapshot().unwrap()
}

pub fn of_ids() -> Snapshot {
    let mut machine = IdStateMachine::new(Vault::default());
    let name = |index: u64| Id::of_request(&index.to_le_bytes());
    for (index, command) in (1..).zip(commands(id(1))) {
        let acked = (index > 3).then(|| name(index - 3));
        let request = IdAction::Request { id: name(index), acked, payload: command.encode() };
        machine.apply(index, Timestamp(index), request).unwrap();
    }
    machine.snapshot().unwrap()
}

/// Commands that leave something in every part of the state.
fn commands(to: SessionId) -> [VaultCommand; 5] {
    let list = Node::List(vec![Node::Number(-3), Node::Text("words".to_owned()), Node::Maybe(None)]);
    let value = Node::Pair { left: Box::new(list.clone()), right: Box::new(Node::Letter('é')) };
    [
        VaultCommand::Put { key: "one".to_owned(), value: value.clone() },
        VaultCommand::PutAll { entries: BTreeMap::from([("two".to_owned(), vec![list])]) },
        VaultCommand::Mark { units: vec![(); 3], by: BTreeMap::from([((), 2)]) },
        VaultCommand::Remove("three".to_owned()),
        VaultCommand::Tell { to, value },
    ]
}

fn restore(snapshot: &Snapshot) {
    restore_sessions(snapshot);
    restore_serials(snapshot);
    restore_ids(snapshot);
}

/// What can be restored can be captured, is restored alike from that, and goes on.
macro_rules! restore {
    ($name:ident, $machine:ident, $go_on:ident) => {
        fn $name(snapshot: &Snapshot) {
            let Ok(machine) = $machine::<Vault>::restore(snapshot) else { return };
            let captured = machine.snapshot().unwrap().to_bytes().unwrap();
            let mut again = $machine::<Vault>::restore(&Snapshot::from_bytes(&captured).unwrap()).unwrap();
            assert_eq!(again.snapshot().unwrap().to_bytes().unwrap(), captured);
            let mut index = again.last_applied();
            for action in $go_on(&machine) {
                index = index.saturating_add(1);
                match again.apply(index, machine.time(), action) {
                    Ok(_) | Err(ApplyError::OutOfOrder { index: u64::MAX, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            again.snapshot().unwrap().to_bytes().unwrap();
        }
    };
}

restore!(restore_sessions, SessionStateMachine, actions_on_sessions);
restore!(restore_serials, SerialStateMachine, actions_on_serials);
restore!(restore_ids, IdStateMachine, actions_on_ids);

fn actions_on_sessions(machine: &SessionStateMachine<Vault>) -> Vec<RaftAction> {
    let sessions: Vec<SessionId> = machine.sessions().take(8).collect();
    let tell = VaultCommand::TellAll(Node::Empty).encode();
    let mut actions = vec![create(id(9)), RaftAction::InternalCommand { payload: tell.clone() }];
    for &session in &sessions {
        for number in [1, 2, u64::MAX] {
            actions.push(request_with(session, number, 1, 1, tell.clone()));
        }
        actions.push(keep_alive(&[alive(session, 4, 1)]));
    }
    actions.push(retry(u64::MAX, 0));
    actions.extend(sessions.iter().take(2).map(|session| expire(*session)));
    let limits = Limits { max_sessions: Some(1), evict_idlest: true, ..Limits::default() };
    actions.extend([configure(limits), RaftAction::Tick]);
    actions
}

fn actions_on_serials(_: &SerialStateMachine<Vault>) -> Vec<SerialAction> {
    let client = ClientId::auto("node-1", u64::MAX);
    let key = Some(SerialKey { client: client.clone(), serial: u64::MAX });
    vec![SerialAction::Command { key, payload: VaultCommand::Look.encode() }, SerialAction::Close { client }]
}

fn actions_on_ids(_: &IdStateMachine<Vault>) -> Vec<IdAction> {
    let request = |id: u8, acked: u8| IdAction::Request {
        id: Id::from_uuid([id; 16]),
        acked: Some(Id::from_uuid([acked; 16])),
        payload: VaultCommand::Look.encode(),
    };
    vec![
        request(1, 0),
        request(2, 1),
        IdAction::Configure { acked_retention: 0 },
        request(3, 2),
        IdAction::ForgetBefore { time: Timestamp(u64::MAX) },
    ]
}
