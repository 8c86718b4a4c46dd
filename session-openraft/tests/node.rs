//! A node in this process, from its opening to its shutdown.

mod support;

use session_openraft::{Config, Node, NodeError, OpenError, Stopped};
use session_runtime::client::{Call, ClientError, Execution};
use session_runtime::{Command, Limits, RefuseReason, RequestError};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use support::{Bank, BankClient, BankCommand, Other, Refused, Slow, SlowClient, dir};

#[tokio::test]
async fn commands_and_queries_are_answered() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client().await.unwrap();
    let bank = BankClient::new(&client);
    let account = bank.open("ada".to_owned()).await.unwrap();
    assert_eq!(bank.deposit(account, 10).await.unwrap(), 10);
    assert_eq!(
        bank.withdraw(account, 11).await,
        Err(ClientError::Rejected(Refused::Insufficient { balance: 10 }))
    );
    assert_eq!(bank.balance(account).await.unwrap(), Some(10));
    assert_eq!(BankClient::new(client.stale()).balance(account).await.unwrap(), Some(10));
    let status = node.status();
    assert_eq!((status.machine, status.sessions, status.leads), ("Bank", 1, true));
    node.shutdown().await;
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    let account = bank.open("ada".to_owned()).await.unwrap();
    for _ in 0..100 {
        bank.deposit(account, 1).await.unwrap();
    }
    node.shutdown().await;
    // A client of the node that is gone is told so.
    let error = bank.deposit(account, 1).await.unwrap_err();
    assert_eq!(error.execution(), Execution::Never, "{error}");

    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    assert_eq!(bank.balance(account).await.unwrap(), Some(100));
    // Time goes on where it was.
    assert!(node.status().time.0 < 60_000);
    node.shutdown().await;
}

#[tokio::test]
async fn a_snapshot_takes_the_place_of_the_log() {
    let dir = dir();
    let config = Config { snapshot_every: 50, ..Config::new(dir.path()) };
    let node = Node::<Bank>::open_with(config.clone()).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    let account = bank.open("ada".to_owned()).await.unwrap();
    for _ in 0..200 {
        bank.deposit(account, 1).await.unwrap();
    }
    let index = node.snapshot().await.unwrap();
    assert!(index >= 200, "{index}");
    assert_eq!(bank.deposit(account, 1).await.unwrap(), 201);
    node.shutdown().await;

    let node = Node::<Bank>::open_with(config).await.unwrap();
    assert!(node.status().snapshot >= index);
    let bank = BankClient::new(node.client().await.unwrap());
    assert_eq!(bank.balance(account).await.unwrap(), Some(201));
    node.shutdown().await;
}

#[tokio::test]
async fn a_snapshot_asked_for_covers_what_was_applied_although_an_older_one_is_being_written() {
    let dir = dir();
    let node = Node::<Slow>::open(dir.path()).await.unwrap();
    let slow = SlowClient::new(node.client().await.unwrap());
    for _ in 0..5 {
        let before = node.status().last_applied;
        let (older, newer) = tokio::join!(node.snapshot(), async {
            // The older one is captured by now, and takes its time to be written.
            tokio::time::sleep(Duration::from_millis(20)).await;
            slow.count().await.unwrap();
            let applied = node.status().last_applied;
            (applied, node.snapshot().await.unwrap())
        });
        let (applied, newer) = newer;
        assert!(older.unwrap() >= before);
        assert!(newer >= applied, "{newer}, though {applied} was applied before it was asked for");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_shutdown_the_directory_can_be_opened_at_once() {
    let dir = dir();
    for _ in 0..50 {
        let node = Node::<Bank>::open(dir.path()).await.unwrap();
        let client = node.client().await.unwrap();
        BankClient::new(&client).open("ada".to_owned()).await.unwrap();
        node.snapshot().await.unwrap();
        node.shutdown().await;
    }
}

#[tokio::test]
async fn snapshots_are_taken_by_themselves() {
    let dir = dir();
    let node =
        Node::<Bank>::open_with(Config { snapshot_every: 50, ..Config::new(dir.path()) }).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    let account = bank.open("ada".to_owned()).await.unwrap();
    while node.status().snapshot == 0 {
        bank.deposit(account, 1).await.unwrap();
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_machine_of_another_name_or_shape_is_refused() {
    let dir = dir();
    Node::<Bank>::open(dir.path()).await.unwrap().shutdown().await;
    let error = Node::<Other>::open(dir.path()).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Machine { .. }), "{error:?}");
    assert!(error.to_string().contains("Bank"), "{error}");
    // Nothing was changed by it.
    Node::<Bank>::open(dir.path()).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn the_logs_time_goes_on_after_a_restart() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    node.internal(&BankCommand::Audit).await.unwrap();
    let before = node.status().time.0;
    assert!(before >= 1_500);
    node.shutdown().await;
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    node.internal(&BankCommand::Audit).await.unwrap();
    let after = node.status().time.0;
    assert!(after >= before + 200, "{after} comes after {before}");
    node.shutdown().await;
}

#[tokio::test]
async fn a_directory_whose_snapshot_was_deleted_is_refused_to_all() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    BankClient::new(node.client().await.unwrap()).open("ada".to_owned()).await.unwrap();
    node.shutdown().await;
    let beginning = dir.path().join("snapshot-0-0.session");
    let bytes = std::fs::read(&beginning).unwrap();
    std::fs::remove_file(&beginning).unwrap();
    let other = Node::<Other>::open(dir.path()).await.map(|_| ()).unwrap_err();
    let same = Node::<Bank>::open(dir.path()).await.map(|_| ()).unwrap_err();
    for error in [other, same] {
        assert!(error.to_string().contains("snapshot-0-0.session is missing"), "{error}");
    }
    // Nothing was changed by it.
    std::fs::write(&beginning, bytes).unwrap();
    Node::<Bank>::open(dir.path()).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let error = Node::<Bank>::open(dir.path()).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Store(_)), "{error:?}");
    assert!(error.source().is_none(), "whoever prints it with its causes says it once");
    node.shutdown().await;
}

#[tokio::test]
async fn a_handler_that_panics_stops_the_node_and_its_entry_can_be_skipped() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let client = node.client().await.unwrap();
    let bank = BankClient::new(&client);
    let account = bank.open("ada".to_owned()).await.unwrap();
    bank.deposit(account, 5).await.unwrap();
    // Both who caused it and who waits beside are told at once, and say what is true.
    let (halted, beside) = tokio::join!(bank.blow_up(), bank.deposit(account, 1));
    let error = halted.unwrap_err();
    assert_eq!(error.execution(), Execution::Unknown);
    assert!(error.to_string().contains("skip"), "{error}");
    drop(beside);
    let error = bank.deposit(account, 1).await.unwrap_err();
    assert_eq!(error.execution(), Execution::Never, "{error}");
    assert!(bank.balance(account).await.is_err());
    assert!(matches!(node.internal(&BankCommand::Audit).await, Err(NodeError::Stopped(Stopped::Halted(_)))));
    let Stopped::Halted(halted) = node.stopped().await else { panic!("{:?}", node.status()) };
    assert_eq!(halted.command, "BlowUp");
    drop(client);
    node.shutdown().await;

    // It halts again, however often it is opened.
    let error = Node::<Bank>::open(dir.path()).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, OpenError::Stopped(Stopped::Halted(again)) if *again == halted), "{error:?}");

    // The operators' way out, and it stays: the log is applied alike at every start.
    let config = Config { skip: vec![halted.index], ..Config::new(dir.path()) };
    Node::<Bank>::open_with(config.clone()).await.unwrap().shutdown().await;
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    let balance = bank.balance(account).await.unwrap().unwrap();
    assert!(balance == 5 || balance == 6, "{balance}");
    node.snapshot().await.unwrap();
    node.shutdown().await;
    let error = Node::<Bank>::open_with(config).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::SkipTooLate { .. }), "{error}");
    let config = Config { skip: vec![1_000], ..Config::new(dir.path()) };
    let error = Node::<Bank>::open_with(config).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::SkipTooEarly { index: 1_000, .. }), "{error}");
}

#[tokio::test]
async fn calls_that_come_together_share_a_place_in_the_log_and_each_can_be_skipped() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let client = Arc::new(node.client().await.unwrap());
    let account = BankClient::new(&*client).open("ada".to_owned()).await.unwrap();
    let deposits = |count: u64| {
        let client = Arc::clone(&client);
        (0..count).map(move |_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { BankClient::new(&*client).deposit(account, 1).await })
        })
    };
    let before: Vec<_> = deposits(20).collect();
    let blows_up = Arc::clone(&client);
    let halting = tokio::spawn(async move { BankClient::new(&*blows_up).blow_up().await });
    let behind: Vec<_> = deposits(20).collect();
    // What ran is answered, though it shares its place with what stops the node.
    for call in before {
        call.await.unwrap().unwrap();
    }
    assert_eq!(halting.await.unwrap().unwrap_err().execution(), Execution::Unknown);
    for call in behind {
        assert_eq!(call.await.unwrap().unwrap_err().execution(), Execution::Unknown);
    }
    let Stopped::Halted(halted) = node.stopped().await else { panic!("{:?}", node.status()) };
    drop(client);
    node.shutdown().await;

    let skipping = |index| Config { skip: vec![index], ..Config::new(dir.path()) };
    let error = Node::<Bank>::open_with(skipping(halted.index + 21)).await.map(|_| ()).unwrap_err();
    let last = halted.index + 20;
    assert!(matches!(error, OpenError::SkipTooEarly { last: found, .. } if found == last), "{error}");
    // All the others stand in the log, and run once.
    let node = Node::<Bank>::open_with(skipping(halted.index)).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    assert_eq!(bank.balance(account).await.unwrap(), Some(40));
    let covered = node.snapshot().await.unwrap();
    assert_eq!(covered, node.status().snapshot);
    assert!(covered > last, "{covered}");
    let names = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    let place = names.iter().find_map(|name| name.strip_prefix("snapshot-")?.split_once('-')).unwrap().0;
    assert!(place.parse::<u64>().unwrap() + 30 < covered, "no entries share a place: {names:?}, {covered}");
    drop(bank);
    node.shutdown().await;
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    // The snapshot's count goes on, with the closing of the session of before.
    let goes_on = covered + 1..=covered + 2;
    assert!(goes_on.contains(&node.status().last_applied), "{goes_on:?}");
    let bank = BankClient::new(node.client().await.unwrap());
    assert_eq!(bank.deposit(account, 2).await.unwrap(), 42);
}

#[tokio::test]
async fn a_skip_that_does_not_help_is_not_kept() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let client = node.client().await.unwrap();
    let bank = BankClient::new(&client);
    let account = bank.open("ada".to_owned()).await.unwrap();
    bank.deposit(account, 5).await.unwrap();
    bank.blow_up().await.unwrap_err();
    let Stopped::Halted(halted) = node.stopped().await else { panic!("{:?}", node.status()) };
    drop(client);
    node.shutdown().await;

    let skipping = |index| Config { skip: vec![index], ..Config::new(dir.path()) };
    let error = Node::<Bank>::open_with(skipping(halted.index - 1)).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Stopped(Stopped::Halted(_))), "{error}");
    // The directory is free at once, and the deposit was not skipped for good.
    let node = Node::<Bank>::open_with(skipping(halted.index)).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    assert_eq!(bank.balance(account).await.unwrap(), Some(5));
    node.shutdown().await;
    // This one is kept.
    Node::<Bank>::open(dir.path()).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn whoever_shares_a_node_can_shut_it_down_and_callers_are_told_so() {
    let dir = dir();
    let node = Arc::new(Node::<Bank>::open(dir.path()).await.unwrap());
    let client = node.client().await.unwrap();
    let bank = BankClient::new(&client);
    let account = bank.open("ada".to_owned()).await.unwrap();
    let other = Arc::clone(&node);
    let (_, (), ()) = tokio::join!(bank.deposit(account, 1), node.shutdown(), other.shutdown());
    let error = bank.deposit(account, 1).await.unwrap_err();
    assert_eq!(error.execution(), Execution::Never);
    assert!(error.to_string().contains("the node was shut down"), "{error}");
    for read in [bank.balance(account).await, BankClient::new(client.stale()).balance(account).await] {
        let error = read.unwrap_err();
        assert!(error.to_string().contains("the node was shut down"), "{error}");
    }
    Node::<Bank>::open(dir.path()).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn a_shutdown_closes_the_sessions_that_nobody_can_go_on_with() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let (living, dropped, stored) =
        (node.client().await.unwrap(), node.client().await.unwrap(), node.client().await.unwrap());
    drop(dropped);
    let bytes = stored.save(10).unwrap();
    stored.saved();
    node.shutdown().await;
    assert!(living.session().is_none());
    drop(stored);

    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    assert_eq!(node.status().sessions, 1);
    node.resume(&bytes).await.unwrap();
    node.shutdown().await;
}

#[tokio::test]
async fn limits_are_set_at_the_beginning_and_by_the_operator_after() {
    let dir = dir();
    let limits = Limits { max_sessions: Some(1), ..Limits::default() };
    let node = Node::<Bank>::open_with(Config { limits, ..Config::new(dir.path()) }).await.unwrap();
    let first = node.client().await.unwrap();
    let error = node.client().await.map(|_| ()).unwrap_err();
    assert_eq!(error, ClientError::Refused(RefuseReason::Full));
    node.configure(Limits { max_sessions: Some(2), ..Limits::default() }).await.unwrap();
    node.client().await.unwrap();
    drop(first);
    node.shutdown().await;
    // A log that exists keeps its own.
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    assert_eq!(node.status().limits.max_sessions, Some(2));
    node.shutdown().await;
}

#[tokio::test]
async fn what_can_never_be_valid_takes_no_place_in_the_log() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client().await.unwrap();
    let before = node.status().last_applied;
    for payload in [BankCommand::Close { account: 1 }.encode(), vec![0; 40 << 20].into(), vec![4, 4].into()] {
        let error = client.command(payload).await.unwrap_err();
        assert_eq!(error, ClientError::InvalidPayload);
    }
    assert_eq!(node.status().last_applied, before);
    // What an upgrade may make valid is in the log, where the refusal is kept.
    let bonus = client.command(BankCommand::Bonus { account: 1 }.encode()).await;
    assert_eq!(bonus, Err(ClientError::InvalidPayload));
    assert_eq!(node.status().last_applied, before + 1);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_can_be_dropped_anywhere() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    std::thread::spawn(move || drop(node)).join().unwrap();
    let again = async {
        loop {
            match Node::<Bank>::open(dir.path()).await {
                Err(OpenError::Store(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
                opened => return opened,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.unwrap().unwrap().shutdown().await;
}

#[tokio::test]
async fn internal_commands_and_upgrades_are_the_operators() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client().await.unwrap();
    let account = BankClient::new(&client).open("ada".to_owned()).await.unwrap();
    let response = node.internal(&BankCommand::Close { account }).await.unwrap();
    assert_eq!(session_runtime::codec::decode::<Option<u64>>(&response.payload).unwrap(), Some(0));
    let payload = session_runtime::Command::encode(&BankCommand::Close { account });
    let error = session_runtime::client::Call::command(&client, payload).await.unwrap_err();
    assert_eq!(error, ClientError::from(RequestError::InvalidPayload));

    assert_eq!(node.upgrade(3).await, Err(NodeError::UnknownVersion { version: 3, build: 2 }));
    assert_eq!(node.status().version, 1);
    assert_eq!(BankClient::new(&client).bonus(account).await, Err(ClientError::InvalidPayload));
    node.upgrade(2).await.unwrap();
    assert_eq!(node.status().version, 2);
    assert_eq!(
        BankClient::new(&client).bonus(account).await,
        Err(ClientError::Rejected(Refused::NoSuchAccount))
    );
    node.shutdown().await;
}
