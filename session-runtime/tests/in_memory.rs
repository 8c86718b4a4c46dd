//! The generated typed client over the in-memory loop: client session, gate, machine, and back.

mod program {
    #![allow(missing_docs, unreachable_pub)] // the program stands as a user would write it
    include!("bank/program.rs");
}

use program::{Bank, BankClient, BankCommand, Notice, Refused};
use session_runtime::client::{Call, ClientConfig, ClientError, Execution, InMemory, block_on};
use session_runtime::{
    Bytes, CloseReason, Command, Limits, RaftAction, RefuseReason, RequestError, ServerAction,
    ServerRequestId,
};
use std::time::Duration;

fn bank() -> (InMemory<Bank>, BankClient<impl Call>) {
    let server = InMemory::new(Bank::default());
    let client = BankClient::new(server.client());
    (server, client)
}

#[test]
fn typed_calls_are_answered_with_values_and_rejections() {
    let (server, bank) = bank();
    assert_eq!(block_on(bank.open("ann".to_owned())), Ok(1));
    assert_eq!(block_on(bank.deposit(1, 50)), Ok(50));
    assert_eq!(block_on(bank.withdraw(1, 20)), Ok(30));
    let refused = block_on(bank.withdraw(1, 31)).unwrap_err();
    assert_eq!(refused, ClientError::Rejected(Refused::Insufficient { balance: 30 }));
    assert_eq!(refused.execution(), Execution::Once);
    assert_eq!(block_on(bank.balance(1)), Ok(Some(30)));
    assert_eq!(block_on(bank.audit()), Ok(30));
    assert_eq!(format!("{:?}, {:?}", bank.audit(), bank.balance(1)), "Answer { .. }, QueryAnswer { .. }");
    assert_eq!(server.inspect(|machine| machine.sessions().count()), 1);
}

#[test]
fn a_query_writes_no_entry() {
    let (server, bank) = bank();
    block_on(bank.open("ann".to_owned())).unwrap();
    let before = server.inspect(session_runtime::SessionStateMachine::last_applied);
    block_on(bank.balance(1)).unwrap();
    assert_eq!(server.inspect(session_runtime::SessionStateMachine::last_applied), before);
}

#[test]
fn server_requests_reach_their_client_once_and_are_acknowledged() {
    let server = InMemory::new(Bank::default());
    let watching = server.client();
    let watcher = BankClient::new(&watching);
    let teller = BankClient::new(server.client());
    block_on(teller.open("ann".to_owned())).unwrap();
    block_on(watcher.watch(1)).unwrap();
    block_on(teller.deposit(1, 5)).unwrap();
    block_on(teller.deposit(1, 5)).unwrap();
    let notice = |balance| Notice::BalanceChanged { account: 1, balance };
    assert_eq!(watching.server_request(), Some((ServerRequestId(1), notice(5))));
    assert_eq!(watching.server_request(), Some((ServerRequestId(2), notice(10))));
    assert_eq!(watching.server_request(), None);
    let pending = server.inspect(|machine| {
        let sessions: Vec<_> = machine.sessions().collect();
        sessions.into_iter().map(|session| machine.pending_requests(session).count()).sum::<usize>()
    });
    assert_eq!(pending, 0);
}

#[test]
fn a_client_that_was_silent_for_too_long_is_told_that_its_session_is_over() {
    let (server, bank) = bank();
    block_on(bank.open("ann".to_owned())).unwrap();
    let limits = Limits { idle_timeout: Some(1_000), ..Limits::default() };
    server.apply(RaftAction::Configure { limits, seed: None }).unwrap();
    let out = server.advance(Duration::from_millis(1_001)).unwrap();
    assert!(matches!(out[..], [ServerAction::SessionClosed { reason: CloseReason::Idle, .. }]));
    let error = block_on(bank.deposit(1, 5)).unwrap_err();
    assert_eq!((error.clone(), error.execution()), (ClientError::SessionExpired, Execution::Unknown));
    let error = block_on(bank.deposit(1, 5)).unwrap_err();
    assert_eq!(error.execution(), Execution::Never, "a session that is over takes no request: {error}");
}

#[test]
fn a_client_without_room_is_refused_and_its_command_never_runs() {
    let server = InMemory::new(Bank::default());
    let limits = Limits { max_sessions: Some(0), ..Limits::default() };
    server.apply(RaftAction::Configure { limits, seed: None }).unwrap();
    let bank = BankClient::new(server.client());
    let error = block_on(bank.open("ann".to_owned())).unwrap_err();
    assert_eq!(
        (error.clone(), error.execution()),
        (ClientError::Refused(RefuseReason::Full), Execution::Never)
    );
    server.apply(RaftAction::Configure { limits: Limits::default(), seed: None }).unwrap();
    server.advance(Duration::from_mins(1)).unwrap();
    assert_eq!(block_on(bank.open("bo".to_owned())), Ok(1), "only this one ran");
}

#[test]
fn capabilities_and_closing_reach_the_machine() {
    let server = InMemory::new(Bank::default());
    let config = ClientConfig {
        capabilities: [("name".to_owned(), "ann".to_owned())].into_iter().collect(),
        ..ClientConfig::default()
    };
    let client = server.client_with(config);
    block_on(BankClient::new(&client).open("ann".to_owned())).unwrap();
    client.close();
    assert_eq!(server.inspect(|machine| machine.sessions().count()), 0);
}

#[test]
fn an_internal_command_is_the_services_own() {
    let (server, bank) = bank();
    block_on(bank.open("ann".to_owned())).unwrap();
    let out =
        server.apply(RaftAction::InternalCommand { payload: BankCommand::Close { account: 1 }.encode() });
    assert!(matches!(out.unwrap()[..], [ServerAction::InternalResponse { result: Ok(_) }]));
    assert_eq!(block_on(bank.balance(1)), Ok(None));
}

#[test]
fn bytes_that_are_no_command_end_as_such() {
    let server = InMemory::new(Bank::default());
    let client = server.client();
    let error = block_on(client.command(Bytes::from_static(&[99]))).unwrap_err();
    assert_eq!(error, ClientError::from(RequestError::InvalidPayload));
    assert!(matches!(block_on(client.query(Bytes::from_static(&[99]))), Err(ClientError::Query(_))));
}
