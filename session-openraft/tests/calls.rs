//! Who does the work of a call: its caller where it is alone, wherever that one runs; else the engine for all.

mod support;

use session_openraft::{Config, Node, NodeClient, Stopped};
use session_runtime::client::{Call, ClientConfig, ClientError, Execution};
use session_runtime::{Command, Limits};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use support::{Bank, BankClient, BankCommand, dir};

async fn open(config: Config) -> (Node<Bank>, Arc<NodeClient<Bank>>) {
    let node = Node::<Bank>::open_with(config).await.unwrap();
    let client = Arc::new(node.client().await.unwrap());
    // What opening it left to do is done by then.
    tokio::time::sleep(Duration::from_millis(20)).await;
    (node, client)
}

async fn call(client: &NodeClient<Bank>) -> Result<(), ClientError> {
    client.command(BankCommand::Audit.encode()).await.map(drop)
}

fn poll_once<T>(call: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    call.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_call_that_is_alone_is_done_by_its_caller() {
    let (node, client) = open(Config::in_memory()).await;
    // Nobody else has a turn: this test is on the only thread. Each is alone again when the one before has ended.
    for _ in 0..10 {
        assert_eq!(poll_once(pin!(call(&client))), Poll::Ready(Ok(())));
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_call_that_is_not_alone_waits_and_is_done_with_the_others() {
    let dir = dir();
    let (node, client) = open(Config::new(dir.path())).await;
    let applied = || node.status().last_applied;
    let before = applied();
    // One waits for the disk, unless the disk was quicker than this thread.
    let mut made = 1;
    let mut first = Box::pin(call(&client));
    while let Poll::Ready(done) = poll_once(first.as_mut()) {
        done.unwrap();
        assert!(made < 1_000, "no call waits for the disk");
        made += 1;
        first = Box::pin(call(&client));
    }
    let mut others: Vec<_> = (0..3).map(|_| Box::pin(call(&client))).collect();
    for call in &mut others {
        assert_eq!(poll_once(call.as_mut()), Poll::Pending);
    }
    for call in others.into_iter().chain([first]) {
        call.await.unwrap();
    }
    assert_eq!(applied(), before + made + 3);
    node.shutdown().await;
}

#[tokio::test]
async fn a_call_that_is_alone_lets_others_have_their_turn() {
    let (node, client) = open(Config::in_memory()).await;
    let done = Arc::new(AtomicBool::new(false));
    let caller = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            while !done.load(Ordering::Relaxed) {
                call(&client).await.unwrap();
            }
        }
    });
    // On the only thread there is.
    tokio::time::sleep(Duration::from_millis(20)).await;
    done.store(true, Ordering::Relaxed);
    caller.await.unwrap();
    node.shutdown().await;
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future in no runtime at all.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_may_be_in_any_runtime_or_in_none() {
    const EACH: u64 = 500;
    let dir = dir();
    for config in [Config::in_memory(), Config::new(dir.path())] {
        let config = Config { snapshot_every: 100, ..config };
        let (node, client) = open(config).await;
        let before = node.status().last_applied;
        let calls = |client: Arc<NodeClient<Bank>>| async move {
            for number in 0..EACH {
                call(&client).await.unwrap();
                if number % 10 == 0 {
                    BankClient::new(&*client).balance(1).await.unwrap();
                }
            }
        };
        let here = tokio::spawn(calls(Arc::clone(&client)));
        let nowhere = calls(Arc::clone(&client));
        let nowhere = std::thread::spawn(move || block_on(nowhere));
        let elsewhere = calls(Arc::clone(&client));
        let elsewhere = std::thread::spawn(move || {
            // Without its timers.
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(elsewhere);
        });
        here.await.unwrap();
        tokio::task::spawn_blocking(move || (nowhere.join().unwrap(), elsewhere.join().unwrap()))
            .await
            .unwrap();
        assert_eq!(node.status().last_applied, before + 3 * EACH);
        drop(client);
        node.shutdown().await;
    }
}

#[tokio::test]
async fn a_query_waits_for_what_was_sent_before_it_in_any_runtime_or_in_none() {
    let dir = dir();
    let (node, client) = open(Config::new(dir.path())).await;
    let caller = tokio::task::spawn_blocking({
        let client = Arc::clone(&client);
        move || {
            let bank = BankClient::new(&*client);
            let mut waited = 0;
            for account in 1..=20 {
                let mut sent = Box::pin(bank.open("ada".to_owned()));
                if poll_once(sent.as_mut()).is_pending() {
                    // It is not answered, so it may or may not have a place in the log yet.
                    waited += u32::from(block_on_thread(|| bank.balance(account)).unwrap().is_some());
                    assert_eq!(block_on(sent), Ok(account));
                }
                assert_eq!(block_on_thread(|| bank.balance(account)), Ok(Some(0)));
            }
            assert!(waited > 0, "no query waited for the disk");
        }
    });
    caller.await.unwrap();
    drop(client);
    node.shutdown().await;
}

/// Runs a call on a thread that is in no runtime.
fn block_on_thread<T: Send, F: Future<Output = T>>(call: impl FnOnce() -> F + Send) -> T {
    std::thread::scope(|threads| threads.spawn(|| block_on(call())).join().unwrap())
}

thread_local! {
    /// Makes a call when its thread ends.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

struct Last(Arc<NodeClient<Bank>>, Arc<AtomicU64>);

impl Drop for Last {
    fn drop(&mut self) {
        // What a thread parks with may be gone.
        let mut call = pin!(call(&self.0));
        while poll_once(call.as_mut()).map(Result::unwrap).is_pending() {
            std::thread::yield_now();
        }
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_may_be_the_last_that_a_thread_does() {
    let dir = dir();
    for config in [Config::in_memory(), Config::new(dir.path())] {
        let (node, client) = open(config).await;
        let made = Arc::new(AtomicU64::new(0));
        for called_before in [false, true] {
            let (client, made) = (Arc::clone(&client), Arc::clone(&made));
            let thread = std::thread::spawn(move || {
                LAST.set(Some(Last(Arc::clone(&client), made)));
                if called_before {
                    // What tokio keeps for the thread is younger, and goes first.
                    block_on(call(&client)).unwrap();
                }
            });
            thread.join().unwrap();
        }
        assert_eq!(made.load(Ordering::Relaxed), 2);
        node.shutdown().await;
    }
}

/// A waker that drops the future it would wake, as those of an executor that is gone do.
struct Drops<F>(Mutex<Option<Pin<Box<F>>>>);

impl<F: Send> Wake for Drops<F> {
    fn wake(self: Arc<Self>) {
        let future = self.0.lock().unwrap().take();
        drop(future);
    }
}

#[tokio::test]
async fn a_waker_may_drop_what_it_would_wake() {
    let (node, client) = open(Config::in_memory()).await;
    let account = BankClient::new(&*client).open("ada".to_owned()).await.unwrap();
    BankClient::new(&*client).watch(account).await.unwrap();
    let watcher = Arc::clone(&client);
    let drops = Arc::new(Drops(Mutex::new(None)));
    let mut waits = Box::pin(async move { watcher.server_request().await.is_some() });
    let waker = Waker::from(Arc::clone(&drops));
    assert_eq!(waits.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    *drops.0.lock().unwrap() = Some(waits);
    // The thread that applies it must not stop: this one looks on.
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        done.send(runtime.block_on(BankClient::new(&*client).deposit(account, 1))).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(30)).expect("it never ends"), Ok(1));
    assert!(drops.0.lock().unwrap().is_none(), "nobody was woken");
    node.shutdown().await;
}

#[tokio::test]
async fn a_node_given_up_while_it_opens_lets_go_of_its_directory() {
    let dir = dir();
    for polls in 0..40 {
        let mut opening = Box::pin(Node::<Bank>::open(dir.path()));
        for _ in 0..polls {
            if poll_once(opening.as_mut()).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(polls)).await;
        }
        drop(opening);
        let mut tries = 0;
        let node = loop {
            match Node::<Bank>::open(dir.path()).await {
                Ok(node) => break node,
                Err(error) if tries == 500 => panic!("given up after {polls} looks: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            tries += 1;
        };
        node.shutdown().await;
    }
}

/// Whatever an application may want to do in a task of its own.
#[tokio::test]
async fn everything_can_be_waited_for_in_a_task() {
    fn in_a_task<T: Send>(future: T) -> T {
        future
    }
    let node = in_a_task(Node::<Bank>::open_with(Config::in_memory())).await.unwrap();
    let client = in_a_task(node.client()).await.unwrap();
    let bank = BankClient::new(client.saving(|_| Ok(())));
    in_a_task(bank.open("ada".to_owned())).await.unwrap();
    in_a_task(bank.balance(1)).await.unwrap();
    in_a_task(BankClient::new(client.stale()).balance(1)).await.unwrap();
    drop(in_a_task(client.server_request()));
    drop(in_a_task(client.server_requests()));
    drop(in_a_task(client.recovered()));
    let saved = client.save(1).unwrap();
    drop(in_a_task(node.resume(&saved)));
    in_a_task(client.close()).await;
    in_a_task(node.internal(&BankCommand::Audit)).await.unwrap();
    in_a_task(node.configure(Limits::default())).await.unwrap();
    in_a_task(node.upgrade(2)).await.unwrap();
    in_a_task(node.snapshot()).await.unwrap();
    drop(in_a_task(node.stopped()));
    in_a_task(node.shutdown()).await;
}

#[test]
fn a_runtime_without_timers_or_io_is_refused_before_anything_is_made() {
    let builder = tokio::runtime::Builder::new_current_thread;
    let mut refused = vec![(builder(), "enable_time")];
    if cfg!(unix) {
        let mut timers_only = builder();
        timers_only.enable_time();
        refused.push((timers_only, "enable_io"));
    }
    for (mut builder, missing) in refused {
        let (room, runtime) = (dir(), builder.build().unwrap());
        let dir = room.path().join("node");
        let opened =
            catch_unwind(AssertUnwindSafe(|| runtime.block_on(Node::<Bank>::open(&dir)).map(|_| ())));
        let panic = opened.unwrap_err();
        let words =
            panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(|s| &**s));
        assert!(words.is_some_and(|words| words.contains(missing)), "{words:?}");
        assert!(!dir.exists());
    }
}

#[test]
fn a_client_outlives_the_runtime_it_was_opened_in() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let limits = Limits { idle_timeout: Some(500), ..Limits::default() };
    let config = Config { limits, keep_alive: Duration::from_millis(50), ..Config::in_memory() };
    let nodes = runtime();
    let node = nodes.block_on(Node::<Bank>::open_with(config)).unwrap();
    let lively = ClientConfig { keep_alive: Duration::from_millis(50), ..ClientConfig::default() };
    let client = runtime().block_on(node.client_with(lively)).unwrap();
    // Nobody but its timers speaks for it.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(block_on(BankClient::new(&client).open("ada".to_owned())), Ok(1));
    // The operator need not be in a runtime, either.
    assert!(block_on(node.snapshot()).unwrap() > 0);
    block_on(client.close());
    block_on(node.shutdown());
}

#[test]
fn a_node_ends_with_its_runtime_and_whoever_waits_is_told() {
    let dir = dir();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let node = runtime.block_on(Node::<Bank>::open(dir.path())).unwrap();
    let client = Arc::new(runtime.block_on(node.client()).unwrap());
    let (done, ended) = std::sync::mpsc::channel();
    // One calls until it is told, and one waits for the machine.
    std::thread::spawn({
        let (client, done) = (Arc::clone(&client), done.clone());
        move || {
            while block_on(BankClient::new(&*client).open("ada".to_owned())).is_ok() {}
            done.send(None)
        }
    });
    std::thread::spawn({
        let client = Arc::clone(&client);
        move || done.send(block_on(client.server_request()))
    });
    std::thread::sleep(Duration::from_millis(50));
    runtime.shutdown_timeout(Duration::from_secs(10));
    for _ in 0..2 {
        assert_eq!(ended.recv_timeout(Duration::from_secs(30)).expect("it is not told"), None);
    }
    let error = block_on(BankClient::new(&client).open("ada".to_owned())).unwrap_err();
    assert_eq!(error.execution(), Execution::Never, "{error}");
    assert!(block_on(node.client()).is_err());
    assert!(block_on(node.snapshot()).is_err());
    assert!(block_on(node.internal(&BankCommand::Audit)).is_err());
    assert_eq!(block_on(node.stopped()), Stopped::Shutdown);
    block_on(node.shutdown());
    // Nobody holds its directory any more.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { Node::<Bank>::open(dir.path()).await.unwrap().shutdown().await });
}

#[test]
fn a_runtime_that_ends_right_after_it_opened_a_node_stops_it() {
    for workers in [0, 1, 4] {
        let watchdog = Watchdog::start();
        let dir = dir();
        let runtime = runtime(workers);
        runtime.block_on(async { Node::<Bank>::open(dir.path()).await.unwrap().shutdown().await });
        let node = runtime.block_on(Node::<Bank>::open(dir.path())).unwrap();
        drop(runtime);
        assert_eq!(block_on(node.stopped()), Stopped::Shutdown);
        assert!(block_on(node.client()).is_err());
        block_on(node.shutdown());
        watchdog.lives();
    }
}

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    let mut builder = match workers {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(workers.max(1)).enable_all().build().unwrap()
}

/// A node in a runtime that ends when it is told to, however it is made to end.
fn node_that_ends(how: fn(tokio::runtime::Runtime)) -> (Arc<Node<Bank>>, impl FnOnce()) {
    let (give, given) = std::sync::mpsc::channel();
    let (end, ends) = tokio::sync::oneshot::channel();
    let owner = std::thread::spawn(move || {
        let runtime = runtime(2);
        give.send(runtime.block_on(Node::<Bank>::open_with(Config::in_memory())).unwrap()).unwrap();
        runtime.block_on(ends).unwrap();
        how(runtime);
    });
    let ended = move || {
        end.send(()).unwrap();
        owner.join().unwrap();
    };
    (Arc::new(given.recv().unwrap()), ended)
}

#[test]
fn a_client_that_is_opened_while_a_runtime_ends_ends_with_it() {
    let watchdog = Watchdog::start();
    for round in 0..300_u64 {
        let how = if round % 2 == 0 { drop } else { tokio::runtime::Runtime::shutdown_background };
        let (node, end) = node_that_ends(how);
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let node = Arc::clone(&node);
                std::thread::spawn(move || {
                    block_on(async {
                        while let Ok(client) = node.client().await {
                            match number % 3 {
                                0 => {}
                                1 => drop(call(&client).await),
                                _ => {
                                    let saved = client.save(10).unwrap();
                                    client.saved();
                                    if let Ok(resumed) = node.resume(&saved).await {
                                        resumed.close().await;
                                    }
                                }
                            }
                            client.close().await;
                        }
                    });
                })
            })
            .collect();
        std::thread::sleep(Duration::from_micros(round * 97 % 8_000));
        end();
        for thread in threads {
            thread.join().unwrap();
        }
        watchdog.lives();
    }
}

/// Asks until there is an error, and says it.
fn ask(
    node: &Arc<Node<Bank>>,
    client: &Arc<NodeClient<Bank>>,
    inside: Option<&tokio::runtime::Handle>,
    ask: fn(&Node<Bank>, &NodeClient<Bank>) -> Option<String>,
) -> std::thread::JoinHandle<String> {
    let (node, client, inside) = (Arc::clone(node), Arc::clone(client), inside.cloned());
    std::thread::spawn(move || {
        let _inside = inside.as_ref().map(tokio::runtime::Handle::enter);
        loop {
            if let Some(error) = ask(&node, &client) {
                return error;
            }
        }
    })
}

#[test]
fn whoever_asks_while_a_runtime_ends_is_told_so() {
    let watchdog = Watchdog::start();
    for round in 0..200_u64 {
        let runtime = runtime(2);
        let node = Arc::new(runtime.block_on(Node::<Bank>::open_with(Config::in_memory())).unwrap());
        let client = Arc::new(runtime.block_on(node.client()).unwrap());
        // Whoever has entered a runtime does not end with it.
        let inside = (round % 2 == 0).then_some(runtime.handle());
        let threads = [
            ask(&node, &client, inside, |_, client| {
                block_on(BankClient::new(client).balance(1)).err().map(|error| error.to_string())
            }),
            ask(&node, &client, inside, |_, client| {
                block_on(call(client)).err().map(|error| error.to_string())
            }),
            ask(&node, &client, inside, |node, _| {
                block_on(node.snapshot()).err().map(|error| error.to_string())
            }),
            ask(&node, &client, inside, |node, _| {
                block_on(node.client()).err().map(|error| error.to_string())
            }),
        ];
        std::thread::sleep(Duration::from_micros(round * 25));
        runtime.shutdown_background();
        for thread in threads {
            let error = thread.join().expect("it is told, and does not panic");
            assert!(error.contains("the node was shut down"), "round {round}: {error}");
        }
        assert_eq!(block_on(node.stopped()), Stopped::Shutdown, "round {round}");
        watchdog.lives();
    }
}

/// In tokio one thread waits for I/O and timers. It may be busy when a call needs it, and a call may make it busy.
#[test]
fn no_call_waits_for_a_busy_thread_and_no_timer_for_a_caller() {
    let watchdog = Watchdog::start();
    let dir = dir();
    let runtime = runtime(4);
    let (node, client) = runtime.block_on(open(Config::new(dir.path())));
    let made = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    let caller = std::thread::spawn({
        let (client, made, ended) = (Arc::clone(&client), Arc::clone(&made), Arc::clone(&ended));
        move || {
            while !ended.load(Ordering::Relaxed) {
                block_on(call(&client)).unwrap();
                made.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for _ in 0..20 {
        // The thread that hears the timer stays until calls were made.
        let made = Arc::clone(&made);
        let busy = runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let before = made.load(Ordering::Relaxed);
            while made.load(Ordering::Relaxed) < before + 5 {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        runtime.block_on(busy).unwrap();
        watchdog.lives();
    }
    ended.store(true, Ordering::Relaxed);
    caller.join().unwrap();

    let computes = Duration::from_millis(800);
    let caller = runtime.spawn(async move {
        for _ in 0..5 {
            for _ in 0..20 {
                call(&client).await.unwrap();
            }
            std::thread::sleep(computes);
        }
    });
    let timer = runtime.spawn(async move {
        let mut latest = Duration::ZERO;
        while !caller.is_finished() {
            let asleep = Instant::now();
            tokio::time::sleep(Duration::from_millis(5)).await;
            latest = latest.max(asleep.elapsed());
        }
        latest
    });
    let latest = runtime.block_on(timer).unwrap();
    assert!(latest < computes / 2, "a timer waited for {latest:?}");
    runtime.block_on(node.shutdown());
    watchdog.lives();
}

#[tokio::test]
async fn a_shutdown_that_is_given_up_is_done_all_the_same() {
    let dir = dir();
    let (node, client) = open(Config::new(dir.path())).await;
    assert_eq!(poll_once(pin!(node.shutdown())), Poll::Pending);
    let stopped = tokio::time::timeout(Duration::from_secs(30), node.stopped()).await;
    assert_eq!(stopped, Ok(Stopped::Shutdown));
    assert!(call(&client).await.is_err());
    node.shutdown().await;
    Node::<Bank>::open(dir.path()).await.unwrap().shutdown().await;
}

#[test]
fn a_node_stops_while_snapshots_are_taken_of_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(6).enable_all().build().unwrap();
    let watchdog = Watchdog::start();
    for _ in 0..300 {
        runtime.block_on(async {
            let node = Arc::new(Node::<Bank>::open_with(Config::in_memory()).await.unwrap());
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..6 {
                let node = Arc::clone(&node);
                tasks.spawn(async move { while node.snapshot().await.is_ok() {} });
            }
            tokio::time::sleep(Duration::from_micros(300)).await;
            for _ in 0..3 {
                let node = Arc::clone(&node);
                tasks.spawn(async move { node.shutdown().await });
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap();
            }
        });
        watchdog.lives();
    }
}

/// Ends the process if nothing moves: threads that wait for each other cannot be given up.
struct Watchdog(std::sync::mpsc::Sender<()>);

impl Watchdog {
    fn start() -> Self {
        let (lives, alive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            loop {
                match alive.recv_timeout(Duration::from_mins(1)) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("nothing moves for a minute");
                        std::process::exit(101);
                    }
                }
            }
        });
        Self(lives)
    }

    fn lives(&self) {
        self.0.send(()).ok();
    }
}
