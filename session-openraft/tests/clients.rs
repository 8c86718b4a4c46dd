//! The clients of a node: their sessions, what they are told, and how they are stored.

mod support;

use session_openraft::{Config, Node};
use session_runtime::client::{ClientConfig, ClientError, Execution};
use session_runtime::{Limits, RefuseReason, SessionId, Timestamp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Bank, BankClient, Notice, dir};

/// A client that says everything soon.
fn hasty() -> ClientConfig {
    let soon = Duration::from_millis(20);
    ClientConfig { ack_delay: soon, keep_alive: soon, resend_after: soon, ..ClientConfig::default() }
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
    let stored = Mutex::new(Vec::new());
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
    assert_eq!(answer.unwrap().read::<u64>().unwrap(), 7);
    assert_eq!(client.recovered().await, None);
    assert_eq!(node.status().last_applied, before);
    // What is sent unsaved might run again after the next crash.
    let error = BankClient::new(&client).deposit(account, 1).await.unwrap_err();
    assert!(matches!(&error, ClientError::NotSent(why) if why.contains("client.saving")), "{error}");
    let bank = BankClient::new(client.saving(|_| Ok(())));
    assert_eq!(bank.deposit(account, 1).await.unwrap(), 8);
    assert_eq!(node.status().sessions, 1);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_stored_last_are_the_ones_saved_last() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = Arc::new(node.client().await.unwrap());
    let stores = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (client, stores) = (Arc::clone(&client), Arc::clone(&stores));
            tokio::spawn(async move {
                let bank = BankClient::new(client.saving(move |_| {
                    assert!(!stores.swap(true, Ordering::SeqCst), "another stores older or newer bytes");
                    std::thread::sleep(Duration::from_micros(100));
                    stores.store(false, Ordering::SeqCst);
                    Ok(())
                }));
                for _ in 0..50 {
                    bank.open("ada".to_owned()).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    node.shutdown().await;
}

#[tokio::test]
async fn what_an_application_does_not_take_waits_in_the_machine() {
    const SENT: u64 = 1_500;
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let watcher = node.client_with(hasty()).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    let account = bank.open("ada".to_owned()).await.unwrap();
    BankClient::new(&watcher).watch(account).await.unwrap();
    for _ in 0..SENT {
        bank.deposit(account, 1).await.unwrap();
    }
    // What was received is acknowledged by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(node.inspect(|machine| machine.has_pending_requests(Timestamp(u64::MAX))));
    for number in 1..=SENT {
        let (request, notice) = watcher.server_request().await.unwrap();
        assert_eq!(request.0, number);
        assert_eq!(notice, Notice::BalanceChanged { account, balance: number });
    }
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
    let client = Arc::new(node.client_with(patient).await.unwrap());
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let client = Arc::clone(&client);
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
    let client = Arc::new(node.client_with(narrow).await.unwrap());
    let (storing, begun) = tokio::sync::oneshot::channel();
    let (fail, failing) = std::sync::mpsc::channel::<()>();
    let (storing, failing) = (Mutex::new(Some(storing)), Mutex::new(failing));
    let stored = tokio::spawn({
        let client = Arc::clone(&client);
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
        let client = Arc::clone(&client);
        async move { BankClient::new(&*client).audit().await }
    });
    // Until it waits for room.
    tokio::time::sleep(Duration::from_millis(50)).await;
    fail.send(()).unwrap();
    assert_eq!(stored.await.unwrap().unwrap_err().execution(), Execution::Unknown);
    assert_eq!(tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap(), Ok(0));
    node.shutdown().await;
}

#[tokio::test]
async fn notices_that_were_not_taken_come_again_to_a_resumed_client() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let client = node.client_with(hasty()).await.unwrap();
    let stored = Mutex::new(Vec::new());
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
    let stored = Mutex::new(Vec::new());
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

#[tokio::test]
async fn two_clients_of_one_session_are_never_told_each_others_answers() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let first = Arc::new(node.client().await.unwrap());
    let account = BankClient::new(first.saving(|_| Ok(()))).open("ada".to_owned()).await.unwrap();
    let bytes = first.save(1).unwrap();
    let waiting = tokio::spawn({
        let first = Arc::clone(&first);
        async move { first.server_request().await }
    });
    let second = node.resume(&bytes).await.unwrap();
    // The first is told at once, and it is told what happened.
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert_eq!(waited.expect("it still waits").unwrap(), None);
    let error = BankClient::new(&*first).deposit(account, 1).await.unwrap_err();
    assert_eq!(error.execution(), Execution::Never, "{error}");
    assert!(error.to_string().contains("resumed"), "{error}");
    // The session is the second's: the first one's end does not close it.
    drop(first);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(BankClient::new(second.saving(|_| Ok(()))).deposit(account, 2).await, Ok(2));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_client_is_known_before_what_was_under_way_is_answered() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let patient = || ClientConfig { resend_after: Duration::from_hours(1), ..ClientConfig::default() };
    for _ in 0..300 {
        let client = node.client_with(patient()).await.unwrap();
        let bytes = Mutex::new(Vec::new());
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn others_go_on_while_a_client_is_stored() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let bank = BankClient::new(node.client().await.unwrap());
    let account = bank.open("ada".to_owned()).await.unwrap();
    let watcher = Arc::new(node.client().await.unwrap());
    BankClient::new(&*watcher).watch(account).await.unwrap();
    let (storing, begun) = tokio::sync::oneshot::channel();
    let (done, go_on) = std::sync::mpsc::channel::<()>();
    let (storing, go_on) = (Mutex::new(Some(storing)), Mutex::new(go_on));
    let saving = tokio::spawn({
        let watcher = Arc::clone(&watcher);
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

#[tokio::test]
async fn more_calls_than_the_window_wait_for_their_turn() {
    let node = Node::<Bank>::open_with(Config::in_memory()).await.unwrap();
    let config = ClientConfig { window: 4, ..ClientConfig::default() };
    let client = Arc::new(node.client_with(config).await.unwrap());
    let account = BankClient::new(&*client).open("ada".to_owned()).await.unwrap();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let client = Arc::clone(&client);
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
