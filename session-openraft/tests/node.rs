//! A node in this process, from its opening to its shutdown.

mod support;

use session_openraft::{Config, Node, NodeError, OpenError, Stopped};
use session_runtime::client::{Call, ClientConfig, ClientError, Execution};
use session_runtime::{Command, Limits, RefuseReason, RequestError, SessionId};
use std::sync::Arc;
use std::time::Duration;
use support::{Bank, BankClient, BankCommand, Notice, Other, Refused, Slow, SlowClient, dir};

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
async fn server_requests_reach_their_client_once_and_in_order() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let watcher = node.client().await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    let account = bank.open("ada".to_owned()).await.unwrap();
    BankClient::new(&watcher).watch(account).await.unwrap();
    for _ in 0..20 {
        bank.deposit(account, 1).await.unwrap();
    }
    for number in 1..=20 {
        let (request, notice) = watcher.server_request().await.unwrap();
        assert_eq!(request.0, number);
        assert_eq!(notice, Notice::BalanceChanged { account, balance: number });
    }
    // They are acknowledged without being asked.
    let session = watcher.session().unwrap();
    while node.inspect(|machine| machine.pending_requests(session).next().is_some()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
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
async fn signs_of_life_share_an_entry() {
    let keep_alive = Duration::from_millis(400);
    let node = Node::<Bank>::open_with(Config { keep_alive, ..Config::in_memory() }).await.unwrap();
    let often = ClientConfig { keep_alive: Duration::from_millis(10), ..ClientConfig::default() };
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(node.client_with(often.clone()).await.unwrap());
    }
    let before = node.status();
    while node.status().time.0 < before.time.0 + 1_000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Thousands were said, by then or whenever this process came to it.
    let after = node.status();
    let entries = after.last_applied - before.last_applied;
    assert!(entries <= (after.time.0 - before.time.0) / 400 + 1, "{entries} entries");
    assert_eq!(after.sessions, 50);
    node.shutdown().await;
}

#[tokio::test]
async fn a_client_that_is_not_waited_for_leaves_nothing() {
    let limits = Limits { max_sessions: Some(0), ..Limits::default() };
    let node = Node::<Bank>::open_with(Config { limits, ..Config::in_memory() }).await.unwrap();
    for _ in 0..3 {
        let opening = node.client();
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            _ = opening => {}
        }
    }
    assert_eq!(node.client().await.map(|_| ()), Err(ClientError::Refused(RefuseReason::Full)));
    assert_eq!(node.status().sessions, 0);
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
async fn idle_sessions_expire_and_living_ones_do_not() {
    let limits = Limits { idle_timeout: Some(300), ..Limits::default() };
    let keep_alive = Duration::from_millis(20);
    let node = Node::<Bank>::open_with(Config { limits, keep_alive, ..Config::in_memory() }).await.unwrap();
    let living = node.client_with(ClientConfig { keep_alive, ..ClientConfig::default() }).await.unwrap();
    let silent = Duration::from_hours(1);
    let dead =
        node.client_with(ClientConfig { keep_alive: silent, ..ClientConfig::default() }).await.unwrap();
    // Nobody writes: the node lets time pass by itself.
    assert_eq!(dead.server_request().await, None);
    let error = BankClient::new(&dead).open("eve".to_owned()).await.unwrap_err();
    assert_eq!(error.execution(), Execution::Never, "{error}");
    BankClient::new(&living).open("ada".to_owned()).await.unwrap();
    assert_eq!(node.status().sessions, 1);
    node.shutdown().await;
}

#[tokio::test]
async fn closing_and_dropping_a_client_end_its_session() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let closed = node.client().await.unwrap();
    let dropped = node.client().await.unwrap();
    assert_eq!(node.status().sessions, 2);
    closed.close().await;
    assert_eq!(node.status().sessions, 1);
    drop(dropped);
    while node.status().sessions > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_stored_client_goes_on_after_a_restart() {
    let dir = dir();
    let stored = std::sync::Mutex::new(Vec::new());
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let client = node.client().await.unwrap();
    let session: SessionId = client.session().unwrap();
    let account = {
        let bank = BankClient::new(client.saving(|bytes| {
            *stored.lock().unwrap() = bytes.to_vec();
            Ok(())
        }));
        let account = bank.open("ada".to_owned()).await.unwrap();
        assert_eq!(bank.deposit(account, 7).await.unwrap(), 7);
        account
    };
    // The process dies here: the bytes stored last were stored before the deposit was sent.
    drop(client);
    node.shutdown().await;

    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    let bytes = stored.lock().unwrap().clone();
    let client = node.resume(&bytes).await.unwrap();
    assert_eq!(client.session(), Some(session));
    // Its answer comes again, and it was not executed again; it did not even need a log entry.
    let before = node.status().last_applied;
    let (_, answer) = client.recovered().await.unwrap();
    assert_eq!(session_runtime::codec::decode::<u64>(&answer.unwrap().payload).unwrap(), 7);
    assert_eq!(client.recovered().await, None);
    assert_eq!(node.status().last_applied, before);
    let bank = BankClient::new(client.saving(|_| Ok(())));
    assert_eq!(bank.deposit(account, 1).await.unwrap(), 8);
    assert_eq!(node.status().sessions, 1);
    node.shutdown().await;
}

#[tokio::test]
async fn a_command_that_cannot_be_stored_is_not_sent() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client_with(hasty()).await.unwrap();
    let bank = BankClient::new(client.saving(|_| Err(std::io::Error::other("no space"))));
    for _ in 0..3 {
        let error = bank.open("ada".to_owned()).await.unwrap_err();
        // Should the bytes be stored all the same, a client that is resumed from them sends it.
        assert_eq!(error.execution(), Execution::Unknown);
        assert!(error.to_string().contains("no space"), "{error}");
    }
    // Nor is it sent later, by whatever timer.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let bank = BankClient::new(client.saving(|_| Ok(())));
    assert_eq!(bank.open("bob".to_owned()).await.unwrap(), 1, "the first account");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_full_of_answers_works_off_what_is_under_way() {
    let limits = Limits { max_cached_bytes: Some(100), ..Limits::default() };
    let node = Node::<Bank>::open_with(Config { limits, ..Config::in_memory() }).await.unwrap();
    // Were it for the timers alone, this would take an hour.
    let patient = ClientConfig { resend_after: Duration::from_hours(1), ..ClientConfig::default() };
    let client = std::sync::Arc::new(node.client_with(patient).await.unwrap());
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let client = std::sync::Arc::clone(&client);
            tokio::spawn(async move { BankClient::new(&*client).open("ada".to_owned()).await.unwrap() })
        })
        .collect();
    for call in calls {
        tokio::time::timeout(Duration::from_secs(30), call).await.unwrap().unwrap();
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_command_given_up_makes_room_for_one_that_waits() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let narrow = ClientConfig { window: 1, ..ClientConfig::default() };
    let client = std::sync::Arc::new(node.client_with(narrow).await.unwrap());
    let (storing, begun) = tokio::sync::oneshot::channel();
    let (fail, failing) = std::sync::mpsc::channel::<()>();
    let (storing, failing) = (std::sync::Mutex::new(Some(storing)), std::sync::Mutex::new(failing));
    let stored = tokio::spawn({
        let client = std::sync::Arc::clone(&client);
        async move {
            let saving = client.saving(move |_| {
                storing.lock().unwrap().take().unwrap().send(()).unwrap();
                failing.lock().unwrap().recv().unwrap();
                Err(std::io::Error::other("no space"))
            });
            BankClient::new(saving).audit().await
        }
    });
    begun.await.unwrap();
    let waiting = tokio::spawn({
        let client = std::sync::Arc::clone(&client);
        async move { BankClient::new(&*client).audit().await }
    });
    // Until it waits for room.
    tokio::time::sleep(Duration::from_millis(50)).await;
    fail.send(()).unwrap();
    assert_eq!(stored.await.unwrap().unwrap_err().execution(), Execution::Unknown);
    assert_eq!(tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap(), Ok(0));
    node.shutdown().await;
}

/// A client that says everything soon.
fn hasty() -> ClientConfig {
    let soon = Duration::from_millis(20);
    ClientConfig { ack_delay: soon, keep_alive: soon, resend_after: soon, ..ClientConfig::default() }
}

#[tokio::test]
async fn notices_that_were_not_taken_come_again_to_a_resumed_client() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client_with(hasty()).await.unwrap();
    let stored = std::sync::Mutex::new(Vec::new());
    let store = |bytes: &[u8]| {
        *stored.lock().unwrap() = bytes.to_vec();
        Ok(())
    };
    let bank = BankClient::new(client.saving(store));
    let account = bank.open("ada".to_owned()).await.unwrap();
    bank.watch(account).await.unwrap();
    for _ in 0..3 {
        bank.deposit(account, 1).await.unwrap();
    }
    assert_eq!(client.server_request().await.unwrap().0.0, 1);
    assert_eq!(bank.deposit(account, 1).await, Ok(4));
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(client);

    let bytes = stored.lock().unwrap().clone();
    let client = node.resume(&bytes).await.unwrap();
    for number in 2..=4 {
        let (request, notice) = client.server_request().await.unwrap();
        assert_eq!(request.0, number);
        assert_eq!(notice, Notice::BalanceChanged { account, balance: number });
    }
    node.shutdown().await;
}

#[tokio::test]
async fn nobody_is_told_never_about_a_session_that_expired_with_a_command_under_way() {
    let limits = Limits { idle_timeout: Some(50), ..Limits::default() };
    let node = Node::<Bank>::open_with(Config { limits, ..Config::in_memory() }).await.unwrap();
    let client = node.client().await.unwrap();
    let stored = std::sync::Mutex::new(Vec::new());
    let store = |bytes: &[u8]| {
        *stored.lock().unwrap() = bytes.to_vec();
        Ok(())
    };
    assert_eq!(BankClient::new(client.saving(store)).open("ada".to_owned()).await, Ok(1));
    drop(client);
    while node.status().sessions > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Its bytes say that the command was under way, and it ran.
    let bytes = stored.lock().unwrap().clone();
    let error = node.resume(&bytes).await.map(|_| ()).unwrap_err();
    assert_eq!((&error, error.execution()), (&ClientError::SessionExpired, Execution::Unknown));
    let error = node.resume(b"nonsense").await.map(|_| ()).unwrap_err();
    assert_eq!(error.execution(), Execution::Unknown, "{error}");
    node.shutdown().await;
}

#[tokio::test]
async fn a_client_takes_the_place_of_the_one_it_was_resumed_from() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let mut client = node.client().await.unwrap();
    for account in 1..=3 {
        let bytes = client.save(1).unwrap();
        client.saved();
        // The new one is there before the old one is dropped.
        let patient = ClientConfig { resend_after: Duration::from_hours(1), ..ClientConfig::default() };
        client = node.resume_with(&bytes, patient).await.unwrap();
        let bank = BankClient::new(client.saving(|_| Ok(())));
        let opened = tokio::time::timeout(Duration::from_secs(30), bank.open("ada".to_owned()));
        assert_eq!(opened.await.unwrap(), Ok(account));
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_client_is_known_before_what_was_under_way_is_answered() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let patient = || ClientConfig { resend_after: Duration::from_hours(1), ..ClientConfig::default() };
    for _ in 0..300 {
        let client = node.client_with(patient()).await.unwrap();
        let bytes = std::sync::Mutex::new(Vec::new());
        let saving = client.saving(|stored| {
            *bytes.lock().unwrap() = stored.to_vec();
            Err(std::io::Error::other("it was killed before it was sent"))
        });
        BankClient::new(saving).open("ada".to_owned()).await.unwrap_err();
        let bytes = bytes.into_inner().unwrap();
        let resumed = node.resume_with(&bytes, patient()).await.unwrap();
        let recovered = tokio::time::timeout(Duration::from_secs(20), resumed.recovered()).await;
        let (_, answer) = recovered.expect("its answer went to nobody").expect("one was under way");
        answer.unwrap();
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_command_without_an_answer_is_sent_again_in_time() {
    let config = ClientConfig {
        resend_after: Duration::from_millis(200),
        keep_alive: Duration::from_hours(1),
        ..ClientConfig::default()
    };
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client_with(config.clone()).await.unwrap();
    let account = BankClient::new(&client).open("ada".to_owned()).await.unwrap();
    // Nothing is due for an hour, and its timers sleep.
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Another goes on with the session, so the answer is not brought here.
    let _other = node.resume_with(&client.save(10).unwrap(), config).await.unwrap();
    let bank = BankClient::new(&client);
    let answer = tokio::time::timeout(Duration::from_secs(10), bank.deposit(account, 3)).await;
    assert_eq!(answer.expect("it is sent again"), Ok(3));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn others_go_on_while_a_client_is_stored() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    let account = bank.open("ada".to_owned()).await.unwrap();
    let watcher = std::sync::Arc::new(node.client().await.unwrap());
    BankClient::new(&*watcher).watch(account).await.unwrap();
    let (storing, begun) = tokio::sync::oneshot::channel();
    let (done, go_on) = std::sync::mpsc::channel::<()>();
    let (storing, go_on) = (std::sync::Mutex::new(Some(storing)), std::sync::Mutex::new(go_on));
    let saving = tokio::spawn({
        let watcher = std::sync::Arc::clone(&watcher);
        async move {
            let slow = watcher.saving(move |_| {
                if let Some(storing) = storing.lock().unwrap().take() {
                    storing.send(()).unwrap();
                    go_on.lock().unwrap().recv().unwrap();
                }
                Ok(())
            });
            BankClient::new(slow).audit().await
        }
    });
    begun.await.unwrap();
    // These tell the client that is being stored what happened.
    for balance in 1..=10 {
        let deposit = tokio::time::timeout(Duration::from_secs(30), bank.deposit(account, 1));
        assert_eq!(deposit.await.unwrap(), Ok(balance));
    }
    done.send(()).unwrap();
    assert_eq!(saving.await.unwrap(), Ok(10));
    node.shutdown().await;
}

#[tokio::test]
async fn what_can_never_be_valid_takes_no_place_in_the_log() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client_with(hasty()).await.unwrap();
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

#[tokio::test]
async fn a_client_given_up_while_it_opens_leaves_no_session() {
    let dir = dir();
    let node = Node::<Bank>::open(dir.path()).await.unwrap();
    // Given up at any moment: before it is asked for, in the log, applied.
    for polls in 0..100 {
        let mut opening = Box::pin(node.client());
        for _ in 0..polls {
            let opened = std::future::poll_fn(|cx| std::task::Poll::Ready(opening.as_mut().poll(cx)));
            if opened.await.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let gone = async {
        while node.status().sessions > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("each of them is closed");
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
async fn more_calls_than_the_window_wait_for_their_turn() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let config = ClientConfig { window: 4, ..ClientConfig::default() };
    let client = std::sync::Arc::new(node.client_with(config).await.unwrap());
    let account = BankClient::new(&*client).open("ada".to_owned()).await.unwrap();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let client = std::sync::Arc::clone(&client);
            tokio::spawn(async move { BankClient::new(&*client).deposit(account, 1).await.unwrap() })
        })
        .collect();
    let mut balances = Vec::new();
    for call in calls {
        balances.push(call.await.unwrap());
    }
    balances.sort_unstable();
    assert_eq!(balances, (1..=100).collect::<Vec<_>>());
    node.shutdown().await;
}

#[tokio::test]
async fn a_caller_that_gives_up_holds_nothing_back() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client().await.unwrap();
    let bank = BankClient::new(&client);
    let account = bank.open("ada".to_owned()).await.unwrap();
    for _ in 0..50 {
        let call = bank.deposit(account, 1);
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            _ = call => {}
        }
    }
    let balance = bank.deposit(account, 0).await.unwrap();
    assert!(balance <= 50);
    // No answer is kept for those who do not wait for it any more.
    let session = client.session().unwrap();
    let kept = || {
        node.inspect(|machine| {
            (1..=60)
                .filter(|n| machine.cached_response(session, session_runtime::RequestId(*n)).is_some())
                .count()
        })
    };
    bank.deposit(account, 0).await.unwrap();
    assert!(kept() <= 2, "{}", kept());
    node.shutdown().await;
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

#[tokio::test]
async fn unacknowledged_server_requests_are_sent_again() {
    let retry = session_runtime::RetryPolicy { min_age: 50, max_age: 50, limit: 0 };
    let node = Node::<Bank>::open_with(Config { retry, ..Config::in_memory() }).await.unwrap();
    // A client that saved itself acknowledges nothing beyond what its stored bytes hold.
    let watcher = node.client().await.unwrap();
    watcher.save(10).unwrap();
    watcher.saved();
    let bank = BankClient::new(node.client().await.unwrap());
    let account = bank.open("ada".to_owned()).await.unwrap();
    BankClient::new(&watcher).watch(account).await.unwrap();
    bank.deposit(account, 1).await.unwrap();
    watcher.server_request().await.unwrap();
    let session = watcher.session().unwrap();
    let attempts =
        || node.inspect(|machine| machine.pending_requests(session).next().map(|one| one.attempts));
    while attempts().unwrap() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Its next bytes hold it: it is acknowledged, and no longer pending.
    watcher.save(10).unwrap();
    watcher.saved();
    while attempts().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    node.shutdown().await;
}
