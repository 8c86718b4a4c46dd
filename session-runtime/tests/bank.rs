//! The bank, as a user writes it, under the wrapper that gives it sessions.

mod program {
    #![allow(missing_docs, unreachable_pub)] // the program stands as a user would write it
    include!("bank/program.rs");

    pub mod tests {
        use super::{Bank, Refused};

        pub fn withdraw_in_a_unit_test() {
            let mut bank = Bank::default();
            assert_eq!(bank.open("ada".to_owned()), 1);
            assert_eq!(bank.withdraw(1, 1), Err(Refused::Insufficient { balance: 0 }));
        }
    }
}

use program::{Bank, BankClient, BankCommand, BankQuery, Notice, Refused};
use session_runtime::client::{Call, ClientError, Execution};
use session_runtime::schema::{Fields, StateField};
use session_runtime::{
    Bytes, Command, Query, RaftAction, RequestError, RequestId, Response, ServerAction, ServerRequestId,
    SessionId, SessionStateMachine, StateMachine, Timestamp, codec,
};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

const CREATED: &str = "the log's next entry applies";

/// A log of one: every action is applied as the next entry.
struct Log {
    machine: SessionStateMachine<Bank>,
    requests: BTreeMap<SessionId, u64>,
}

impl Log {
    fn new() -> Self {
        Self { machine: SessionStateMachine::new(Bank::default()), requests: BTreeMap::new() }
    }

    fn apply(&mut self, action: RaftAction) -> Vec<ServerAction> {
        let index = self.machine.last_applied() + 1;
        self.machine.apply(index, Timestamp(index), action).expect(CREATED)
    }

    fn session(&mut self) -> SessionId {
        let session = SessionId::draw(self.machine.last_applied(), 7);
        let capabilities = BTreeMap::new();
        let out = self.apply(RaftAction::SessionCreationConfirmed { session, capabilities });
        assert_eq!(out, [ServerAction::SessionCreated { session }]);
        session
    }

    fn send(&mut self, session: SessionId, payload: Bytes) -> (RequestId, Vec<ServerAction>) {
        let number = self.requests.entry(session).or_default();
        *number += 1;
        let request = RequestId(*number);
        let action = RaftAction::ClientRequest {
            session,
            request,
            lowest_pending: request,
            acked: ServerRequestId(0),
            payload,
        };
        (request, self.apply(action))
    }

    /// The response to a command, and what was sent besides.
    fn ask(&mut self, session: SessionId, command: &BankCommand) -> (Response, Vec<ServerAction>) {
        let (request, mut out) = self.send(session, command.encode());
        let ServerAction::SendResponse { session: to, request: about, response } = out.remove(0) else {
            panic!("no response: {out:?}");
        };
        assert_eq!((to, about), (session, request));
        (response, out)
    }
}

fn accepted<T: serde::Serialize>(value: &T) -> Response {
    Response::accepted(value).expect("it encodes")
}

#[test]
fn commands_are_dispatched_and_answered() {
    let mut log = Log::new();
    let session = log.session();
    let open = BankCommand::Open { owner: "ada".to_owned() };
    assert_eq!(log.ask(session, &open).0, accepted(&1u64));
    let deposit = BankCommand::Deposit { account: 1, amount: 50 };
    assert_eq!(log.ask(session, &deposit).0, accepted(&50u64));
    let withdraw = BankCommand::Withdraw { account: 1, amount: 20 };
    assert_eq!(log.ask(session, &withdraw).0, accepted(&30u64));
    assert_eq!(log.ask(session, &BankCommand::Watch(1)).0, accepted(&()));
    assert_eq!(log.ask(session, &BankCommand::Audit).0, accepted(&30u64));
}

#[test]
fn rejections_are_answers() {
    let mut log = Log::new();
    let session = log.session();
    log.ask(session, &BankCommand::Open { owner: "ada".to_owned() });
    let (response, _) = log.ask(session, &BankCommand::Withdraw { account: 1, amount: 1 });
    let refused = Response::rejected(&Refused::Insufficient { balance: 0 }).expect("it encodes");
    assert_eq!(response, refused);
    let (response, _) = log.ask(session, &BankCommand::Deposit { account: 9, amount: 1 });
    assert_eq!(response, Response::rejected(&Refused::NoSuchAccount).expect("it encodes"));
}

#[test]
fn watchers_are_told_until_they_leave() {
    let mut log = Log::new();
    let (teller, watcher) = (log.session(), log.session());
    log.ask(teller, &BankCommand::Open { owner: "ada".to_owned() });
    log.ask(watcher, &BankCommand::Watch(1));
    let (_, out) = log.ask(teller, &BankCommand::Deposit { account: 1, amount: 5 });
    let notice = Notice::BalanceChanged { account: 1, balance: 5 };
    let payload = codec::encode(&notice).expect("it encodes");
    let sent = ServerAction::SendServerRequest { session: watcher, request: ServerRequestId(1), payload };
    assert_eq!(out, [sent]);

    log.apply(RaftAction::SessionExpired { session: watcher });
    let (_, out) = log.ask(teller, &BankCommand::Deposit { account: 1, amount: 5 });
    assert_eq!(out, []);
}

#[test]
fn an_internal_command_is_not_the_clients() {
    let mut log = Log::new();
    let session = log.session();
    log.ask(session, &BankCommand::Open { owner: "ada".to_owned() });
    let payload = BankCommand::Close { account: 1 }.encode();
    let (request, out) = log.send(session, payload.clone());
    let error = RequestError::InvalidPayload;
    assert_eq!(out, [ServerAction::SendRequestError { session, request, error }]);
    let out = log.apply(RaftAction::InternalCommand { payload });
    assert_eq!(out, [ServerAction::InternalResponse { result: Ok(accepted(&Some(0u64))) }]);
}

#[test]
fn queries_read_the_applied_state() {
    let mut log = Log::new();
    let session = log.session();
    log.ask(session, &BankCommand::Open { owner: "ada".to_owned() });
    let answer = log.machine.query(&BankQuery::Balance { account: 1 }.encode()).expect("it is a query");
    assert_eq!(codec::decode::<Option<u64>>(&answer), Ok(Some(0)));
    assert!(log.machine.query(&[9]).is_err());
}

#[test]
fn the_state_is_in_the_snapshot_field_by_field() {
    let mut log = Log::new();
    let session = log.session();
    log.ask(session, &BankCommand::Open { owner: "ada".to_owned() });
    log.ask(session, &BankCommand::Watch(1));
    let snapshot = log.machine.snapshot().expect("it is taken");
    let dictionary = snapshot.dictionary().expect("it is read");
    let user: Vec<&str> =
        dictionary.keys().map(String::as_str).filter(|key| key.starts_with("user/")).collect();
    assert_eq!(user, ["user/balances", "user/owners", "user/watchers"]);
    let owners = BTreeMap::from([(1u64, "ada".to_owned())]);
    assert_eq!(dictionary["user/owners"], codec::encode(&owners).expect("it encodes"));

    let mut restored = SessionStateMachine::<Bank>::restore(&snapshot).expect("it fits");
    let bytes = |machine: &SessionStateMachine<Bank>| machine.snapshot().map(|snapshot| snapshot.to_bytes());
    assert_eq!(bytes(&restored), bytes(&log.machine));
    let index = restored.last_applied() + 1;
    let deposit = BankCommand::Deposit { account: 1, amount: 3 }.encode();
    let out = restored.apply(index, Timestamp(index), RaftAction::InternalCommand { payload: deposit });
    assert_eq!(out.expect(CREATED).len(), 2, "the answer, and the notice to the watcher");
}

#[test]
fn the_schema_is_there_at_compile_time() {
    const SCHEMA: session_runtime::Schema = Bank::SCHEMA;
    assert_eq!(SCHEMA, <Bank as StateMachine>::SCHEMA);
    assert_eq!((SCHEMA.name, SCHEMA.version, SCHEMA.server_request), ("Bank", 1, "Notice"));
    let names: Vec<&str> = SCHEMA.commands.iter().map(|variant| variant.name).collect();
    assert_eq!(names, ["Open", "Deposit", "Withdraw", "Watch", "Audit", "Close"]);
    assert_eq!(SCHEMA.commands[1].fields, Fields::Struct(&[("account", "u64"), ("amount", "u64")]));
    assert_eq!(SCHEMA.commands[3].fields, Fields::Tuple(&["u64"]));
    assert_eq!(SCHEMA.commands[4].fields, Fields::Unit);
    assert_eq!(SCHEMA.handler("Withdraw").map(|handler| handler.reply), Some("Result<u64, Refused>"));
    assert_eq!(SCHEMA.state[0], StateField::new("owners", "BTreeMap<u64, String>"));
    assert_eq!(SCHEMA.queries[0].fields, [("account", "u64")]);
    assert_eq!(BankCommand::Audit.name(), "Audit");
}

/// A machine in this process as a transport.
struct InMemory {
    log: Mutex<Log>,
    session: SessionId,
}

impl InMemory {
    fn new() -> Self {
        let mut log = Log::new();
        let session = log.session();
        Self { log: Mutex::new(log), session }
    }
}

impl Call for InMemory {
    async fn command(&self, payload: Bytes) -> Result<Response, ClientError> {
        let (_, mut out) = self.log.lock().expect("nobody panicked").send(self.session, payload);
        match out.remove(0) {
            ServerAction::SendResponse { response, .. } => Ok(response),
            ServerAction::SendRequestError { error, .. } => Err(error.into()),
            other => Err(ClientError::Transport(format!("{other:?}"))),
        }
    }

    async fn query(&self, payload: Bytes) -> Result<Bytes, ClientError> {
        let log = self.log.lock().expect("nobody panicked");
        log.machine.query(&payload).map_err(|error| ClientError::Query(error.to_string()))
    }
}

/// Runs a future that never waits, and asks of it that it can go to another thread.
fn run<T>(future: impl std::future::Future<Output = T> + Send) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

#[test]
fn the_typed_client_calls_the_machine() {
    let client = BankClient::new(InMemory::new());
    run(async {
        assert_eq!(client.open("ada".to_owned()).await, Ok(1));
        assert_eq!(client.deposit(1, 10).await, Ok(10));
        assert_eq!(client.watch(1).await, Ok(()));
        assert_eq!(client.balance(1).await, Ok(Some(10)));
        assert_eq!(client.audit().await, Ok(10));
        let refused: ClientError<Refused> = client.withdraw(1, 11).await.expect_err("there is too little");
        assert_eq!(refused, ClientError::Rejected(Refused::Insufficient { balance: 10 }));
        assert_eq!(refused.execution(), Execution::Once);
    });
}

#[test]
fn handlers_are_ordinary_methods() {
    // They keep the user's visibility, so a test beside them calls them as they are.
    program::tests::withdraw_in_a_unit_test();
}
