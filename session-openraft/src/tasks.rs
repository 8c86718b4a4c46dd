//! How openraft's tasks run: by tokio, or by a caller who has something for them.

use crate::bell::{Bell, Listener};
use crate::service::lock;
use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{try_id, unconstrained};

/// The tasks that an engine was made of.
///
/// openraft decides in one task and applies in another, and a command passes from the caller's to the first and then to
/// the second. tokio runs them as it runs any others, each by itself: one command is applied while the next is
/// written. That is of no use to a caller who is alone, and waking so many costs more than what they do. So such a
/// caller runs them, and until somebody else comes whoever runs one of them runs all.
///
/// While one of them runs a handler for such a caller, the others wait. With one voter that harms nobody; with
/// several, a leader would miss its heartbeats, so their engines have to be made without this.
pub(crate) struct EngineTasks {
    tasks: Vec<Task>,
    common: Arc<Common>,
    /// Where they run, whoever runs them.
    runtime: Handle,
}

/// What the tasks have in common.
struct Common {
    /// Whether whoever runs one runs all.
    together: AtomicBool,
    /// Wakes tokio's, from the thread that writes the log.
    bell: Option<Arc<Bell>>,
}

type Spawned = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    /// None once it has ended.
    future: Mutex<Option<Spawned>>,
    state: Arc<State>,
    /// Wakes it.
    waker: Waker,
}

/// Makes an engine, and gives its tasks for as long as tokio has them.
pub(crate) async fn make<T>(
    bell: Option<(Arc<Bell>, Listener)>,
    engine: impl Future<Output = T>,
) -> (T, Weak<EngineTasks>) {
    let (bell, listener) = bell.unzip();
    let common = Arc::new(Common { together: AtomicBool::new(false), bell });
    let spawned = Arc::<Mutex<Vec<Spawned>>>::default();
    let engine = SPAWNED.scope(Arc::clone(&spawned), engine).await;
    let task = |future| Task::new(future, Arc::clone(&common));
    let tasks = std::mem::take(&mut *lock(&spawned)).into_iter().map(task).collect();
    let tasks = Arc::new(EngineTasks { tasks, common, runtime: Handle::current() });
    for place in 0..tasks.tasks.len() {
        let tasks = Arc::clone(&tasks);
        tokio::spawn(poll_fn(move |cx| tasks.poll(&tasks.tasks[place], cx)));
    }
    // They hold whatever they need of the node, so nobody else may keep them.
    let tasks = Arc::downgrade(&tasks);
    if let Some(listener) = listener {
        tokio::spawn(listen(listener, Weak::clone(&tasks)));
    }
    (engine, tasks)
}

/// Wakes tokio's tasks when the bell is rung, for as long as there are some.
async fn listen(mut listener: Listener, tasks: Weak<EngineTasks>) {
    while listener.rung().await.is_ok()
        && let Some(tasks) = tasks.upgrade()
    {
        tasks.tasks.iter().filter(|task| task.state.is_woken()).for_each(|task| task.state.wake_tokio());
    }
}

impl EngineTasks {
    /// Does the work of a caller who is alone, and then runs the tasks that it woke and those that they wake, each once
    /// at most. What is left is tokio's.
    pub(crate) fn run_after<T>(&self, work: impl FnOnce() -> T) -> T {
        self.common.together.store(true, Ordering::Relaxed);
        self.run_together(work)
    }

    /// Does the work of several callers. tokio runs the tasks that it wakes.
    pub(crate) fn wake_by<T>(&self, work: impl FnOnce() -> T) -> T {
        self.common.together.store(false, Ordering::Relaxed);
        work()
    }

    fn run_together<T>(&self, work: impl FnOnce() -> T) -> T {
        // A thread that ends may already be without what tokio keeps for it, and nothing can run there.
        if try_id().is_none() && Handle::try_current().is_err_and(|none| none.is_thread_local_destroyed()) {
            return work();
        }
        let _inside = self.runtime.enter();
        let mut held: Vec<_> = self.tasks.iter().filter_map(Task::hold).collect();
        let done = work();
        // The youngest first: openraft spawns the task that applies before the one that decides, and while a handler
        // runs, no other task that has something to do should be held.
        while let Some(place) = held.iter().rposition(|held| held.0.state.take_wake()) {
            held.remove(place).0.run_for_another();
        }
        done
    }

    /// As tokio's task, of one of them.
    fn poll(&self, task: &Task, cx: &mut Context<'_>) -> Poll<()> {
        // First, so that whoever holds it, or wakes it, finds the waker from here on.
        *lock(&task.state.tokio) = Some(cx.waker().clone());
        if self.common.together.load(Ordering::Relaxed) {
            self.run_together(|| ());
        } else if let Some(held) = task.hold()
            && task.state.take_wake()
        {
            held.0.run();
        }
        if task.state.has_ended() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for EngineTasks {
    fn drop(&mut self) {
        // Nobody has to listen any longer.
        if let Some(bell) = &self.common.bell {
            bell.wake();
        }
    }
}

impl Task {
    fn new(future: Spawned, common: Arc<Common>) -> Self {
        let state = Arc::new(State { bits: AtomicU8::new(WOKEN), tokio: Mutex::default(), common });
        Self { future: Mutex::new(Some(future)), waker: Waker::from(Arc::clone(&state)), state }
    }

    /// None where somebody else holds it.
    fn hold(&self) -> Option<Held<'_>> {
        self.state.hold().then_some(Held(self))
    }

    /// Runs it for somebody who may have little left of tokio's budget, which is not this one's, and who has no time for
    /// what others want: it gets one [`turn`].
    fn run_for_another(&self) {
        let before = TURN.replace(Some(true));
        let run = unconstrained(poll_fn(|_| {
            self.run();
            Poll::Ready(())
        }));
        let _ = pin!(run).poll(&mut Context::from_waker(Waker::noop()));
        TURN.set(before);
    }

    /// For whoever holds it.
    fn run(&self) {
        let mut future = lock(&self.future);
        if let Some(running) = &mut *future
            && running.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready()
        {
            *future = None;
            self.state.end();
        }
    }
}

/// A task that nobody else runs until this is dropped.
struct Held<'a>(&'a Task);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state.release();
    }
}

thread_local! {
    /// Whether there is a turn left, where a task is run for another.
    static TURN: Cell<Option<bool>> = const { Cell::new(None) };
}

/// To be awaited by a task before each of the pieces of its work that may be long. One that is run for another has time
/// for one of them, and leaves the rest to tokio.
pub(crate) async fn turn() {
    poll_fn(|cx| match TURN.get() {
        None => Poll::Ready(()),
        Some(true) => {
            TURN.set(Some(false));
            Poll::Ready(())
        }
        Some(false) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// Whether a task is held, was woken, and has ended.
struct State {
    bits: AtomicU8,
    /// Wakes tokio's task, unless it was woken since it last ran.
    tokio: Mutex<Option<Waker>>,
    common: Arc<Common>,
}

/// Somebody holds the task: nobody else runs it, and tokio is not told that it was woken.
const HELD: u8 = 1;
/// The task was woken since it was last run.
const WOKEN: u8 = 2;
/// The task has ended.
const ENDED: u8 = 4;

impl State {
    /// Fails where somebody else holds it.
    fn hold(&self) -> bool {
        self.bits.fetch_or(HELD, Ordering::AcqRel) & HELD == 0
    }

    /// Whether it is to be run.
    fn take_wake(&self) -> bool {
        self.bits.fetch_and(!WOKEN, Ordering::AcqRel) & WOKEN != 0
    }

    /// By whoever holds it. If it was woken and not run, tokio is told now.
    fn release(&self) {
        if self.bits.fetch_and(!HELD, Ordering::AcqRel) & WOKEN != 0 {
            self.tell_tokio();
        }
    }

    /// By whoever holds it. tokio's task has to end, too.
    fn end(&self) {
        self.bits.fetch_or(ENDED | WOKEN, Ordering::AcqRel);
    }

    fn has_ended(&self) -> bool {
        self.bits.load(Ordering::Acquire) & ENDED != 0
    }

    fn is_woken(&self) -> bool {
        self.bits.load(Ordering::Acquire) & WOKEN != 0
    }

    /// tokio's task has something to do.
    fn tell_tokio(&self) {
        let Common { together, bell } = &*self.common;
        // Where callers come together there is something to do for all of tokio's threads.
        let rung = together.load(Ordering::Relaxed) && bell.as_ref().is_some_and(Bell::ring);
        if !rung {
            self.wake_tokio();
        }
    }

    fn wake_tokio(&self) {
        let waker = lock(&self.tokio).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.bits.fetch_or(WOKEN, Ordering::AcqRel) == 0 {
            self.tell_tokio();
        }
    }
}

tokio::task_local! {
    /// What is spawned while an engine is made.
    static SPAWNED: Arc<Mutex<Vec<Spawned>>>;
}

/// tokio, for openraft's tasks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tasks;

impl AsyncRuntime for Tasks {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type OneshotSender<T: OptionalSend> = <TokioRuntime as AsyncRuntime>::OneshotSender<T>;
    type OneshotReceiver<T: OptionalSend> = <TokioRuntime as AsyncRuntime>::OneshotReceiver<T>;
    type OneshotReceiverError = <TokioRuntime as AsyncRuntime>::OneshotReceiverError;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let Ok(spawned) = SPAWNED.try_with(Arc::clone) else { return TokioRuntime::spawn(future) };
        let (tell, told) = oneshot::channel();
        let mut future = Box::pin(future);
        let guarded = poll_fn(move |cx| {
            // A panic is the task's, whoever runs it.
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        });
        lock(&spawned).push(Box::pin(async move {
            tell.send(guarded.await).ok();
        }));
        TokioRuntime::spawn(async move {
            match told.await {
                Ok(Ok(ended)) => ended,
                Ok(Err(panic)) => resume_unwind(panic),
                // Its future was dropped.
                Err(_) => resume_unwind(Box::new("the task was given up")),
            }
        })
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn oneshot<T: OptionalSend>() -> (Self::OneshotSender<T>, Self::OneshotReceiver<T>) {
        TokioRuntime::oneshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell;
    use std::sync::atomic::AtomicU64;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    /// Two tasks, as openraft's: the first takes a number and hands it to the second, which adds it up and tells the
    /// first, which counts.
    struct Engine {
        give: UnboundedSender<u64>,
        sum: Arc<AtomicU64>,
        told: Arc<AtomicU64>,
        first: <Tasks as AsyncRuntime>::JoinHandle<()>,
        second: <Tasks as AsyncRuntime>::JoinHandle<()>,
    }

    /// The number that makes the second task panic.
    const PANIC: u64 = u64::MAX;

    async fn engine() -> (Engine, Weak<EngineTasks>) {
        let made = make(bell::bell().ok(), async {
            let (give, mut given) = unbounded_channel();
            let (hand, mut handed) = unbounded_channel();
            let (tell, mut told_one) = unbounded_channel();
            let (sum, told) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
            let (sum_of_second, told_to_first) = (Arc::clone(&sum), Arc::clone(&told));
            let first = Tasks::spawn(async move {
                loop {
                    tokio::select! {
                        number = given.recv() => match number {
                            Some(number) => hand.send(number).unwrap(),
                            None => return,
                        },
                        one = told_one.recv() => match one {
                            Some(()) => { told_to_first.fetch_add(1, Ordering::Relaxed); }
                            None => return,
                        },
                    }
                }
            });
            let second = Tasks::spawn(async move { add(&mut handed, &tell, &sum_of_second).await });
            Engine { give, sum, told, first, second }
        })
        .await;
        // Each has begun, and has nothing to do.
        tokio::time::sleep(Duration::from_millis(1)).await;
        made
    }

    async fn add(handed: &mut UnboundedReceiver<u64>, tell: &UnboundedSender<()>, sum: &AtomicU64) {
        while let Some(number) = handed.recv().await {
            assert_ne!(number, PANIC, "as it was told to");
            sum.fetch_add(number, Ordering::Relaxed);
            tell.send(()).ok();
        }
    }

    impl Engine {
        fn give(&self, number: u64) {
            self.give.send(number).unwrap();
        }

        fn sum(&self) -> u64 {
            self.sum.load(Ordering::Relaxed)
        }

        fn told(&self) -> u64 {
            self.told.load(Ordering::Relaxed)
        }
    }

    async fn until(there: impl Fn() -> bool) {
        let there = async {
            while !there() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), there).await.expect("somebody was not woken");
    }

    #[tokio::test]
    async fn tokio_runs_them_where_nobody_else_does() {
        let (engine, _) = engine().await;
        for times in 1..=3 {
            engine.give(1);
            assert_eq!(engine.sum(), times - 1);
            until(|| engine.told() == times).await;
        }
    }

    #[tokio::test]
    async fn whoever_gives_them_something_runs_each_once_and_tokio_does_the_rest() {
        let (engine, tasks) = engine().await;
        let tasks = tasks.upgrade().unwrap();
        for times in 1..=3 {
            // tokio has no turn in between: this test is on its only thread.
            tasks.run_after(|| engine.give(1));
            assert_eq!((engine.sum(), engine.told()), (times, times - 1));
            let told = tasks.tasks.iter().map(|task| lock(&task.state.tokio).is_none());
            assert_eq!(told.collect::<Vec<_>>(), [true, false], "only the first has something left to do");
            until(|| engine.told() == times).await;
        }
        // What was left is done along with what comes next.
        for times in 4..=6 {
            tasks.run_after(|| engine.give(1));
            assert_eq!((engine.sum(), engine.told()), (times, times - 1));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_left_undone_whoever_runs_them_and_whoever_gives_them_something() {
        const EACH: u64 = 20_000;
        // Who runs them after giving them something.
        for runs in
            [&[false][..], &[true], &[false, false], &[false, true], &[true, true], &[false, true, true]]
        {
            let (engine, tasks) = engine().await;
            let engine = Arc::new(engine);
            let threads: Vec<_> = runs
                .iter()
                .map(|runs| {
                    let (engine, tasks) = (Arc::clone(&engine), tasks.upgrade().unwrap());
                    std::thread::spawn(move || {
                        for number in 0..EACH {
                            if *runs {
                                tasks.run_after(|| engine.give(1));
                            } else {
                                engine.give(1);
                            }
                            // So that they are idle in between, too.
                            if number % 64 == 0 {
                                std::thread::sleep(Duration::from_micros(50));
                            }
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            let all = EACH * runs.len() as u64;
            until(|| engine.sum() == all && engine.told() == all).await;
        }
    }

    #[tokio::test]
    async fn they_are_gone_when_they_have_ended_whoever_ran_them() {
        for by_a_caller in [false, true] {
            let (Engine { give, first, second, .. }, tasks) = engine().await;
            if by_a_caller {
                tasks.upgrade().unwrap().run_after(|| drop(give));
            } else {
                drop(give);
            }
            first.await.unwrap();
            second.await.unwrap();
            until(|| tasks.strong_count() == 0).await;
        }
    }

    #[tokio::test]
    async fn nobody_listens_to_a_bell_that_nobody_will_ring() {
        let before = Handle::current().metrics().num_alive_tasks();
        let (Engine { give, .. }, _) = engine().await;
        drop(give);
        until(|| Handle::current().metrics().num_alive_tasks() == before).await;
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_thread_that_expects_more_rings_while_a_caller_is_alone() {
        for alone in [true, false] {
            let (engine, tasks) = engine().await;
            let tasks = tasks.upgrade().unwrap();
            if alone {
                tasks.run_after(|| ());
            } else {
                tasks.wake_by(|| ());
            }
            let give = engine.give.clone();
            let rung = std::thread::spawn(move || {
                bell::expect(true);
                give.send(1).unwrap();
                bell::has_rung()
            });
            assert_eq!(rung.join().unwrap(), alone);
            // tokio's own thread is this one, and has heard nothing yet.
            let told = lock(&tasks.tasks[0].state.tokio).is_none();
            assert_eq!(told, !alone);
            until(|| engine.told() == 1).await;
        }
    }

    #[tokio::test]
    async fn a_panic_is_the_tasks_whoever_ran_it() {
        for by_a_caller in [false, true] {
            let (engine, tasks) = engine().await;
            if by_a_caller {
                tasks.upgrade().unwrap().run_after(|| engine.give(PANIC));
            } else {
                engine.give(PANIC);
            }
            let panic = engine.second.await.unwrap_err();
            assert!(Tasks::is_panic(&panic));
            let words = panic.into_panic().downcast::<String>().unwrap();
            assert!(words.contains("as it was told to"), "{words}");
            // The other finds out when it listens, as it would anywhere.
            engine.first.await.unwrap();
            until(|| tasks.strong_count() == 0).await;
        }
    }

    #[tokio::test]
    async fn who_holds_them_is_not_waited_for() {
        let (engine, tasks) = engine().await;
        let tasks = tasks.upgrade().unwrap();
        tasks.run_after(|| tasks.run_after(|| engine.give(1)));
        assert_eq!(engine.sum(), 1);
        until(|| engine.told() == 1).await;
    }

    /// Two tasks: one blocks its thread when it is told to, the other answers.
    async fn blocking() -> (Weak<EngineTasks>, Blocking) {
        let (block, blocked) = std::sync::mpsc::channel::<()>();
        let (begin, start) = oneshot::channel::<()>();
        let (ask, mut asked) = unbounded_channel::<()>();
        let (say, said) = unbounded_channel();
        let ((), tasks) = make(bell::bell().ok(), async move {
            Tasks::spawn(async move {
                start.await.unwrap();
                blocked.recv().ok();
            });
            Tasks::spawn(async move {
                while asked.recv().await.is_some() {
                    say.send(()).unwrap();
                }
            });
        })
        .await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        (tasks, Blocking { begin, ask, said, _block: block })
    }

    struct Blocking {
        begin: oneshot::Sender<()>,
        ask: UnboundedSender<()>,
        said: UnboundedReceiver<()>,
        /// The first blocks until this is dropped.
        _block: std::sync::mpsc::Sender<()>,
    }

    async fn is_answered(said: &mut UnboundedReceiver<()>) {
        let answer = tokio::time::timeout(Duration::from_secs(30), said.recv()).await;
        assert!(answer.expect("it waits for the one that blocks").is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn while_tokio_runs_one_for_several_callers_it_runs_the_others() {
        let (tasks, Blocking { begin, ask, mut said, _block }) = blocking().await;
        let engine = tasks.upgrade().unwrap();
        // One was alone before.
        engine.run_after(|| ());
        engine.wake_by(|| begin.send(()).unwrap());
        for _ in 0..100 {
            ask.send(()).unwrap();
            is_answered(&mut said).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn while_a_caller_runs_one_it_holds_none_that_it_has_run() {
        let (tasks, Blocking { begin, ask, mut said, _block }) = blocking().await;
        let give = {
            let ask = ask.clone();
            move || {
                ask.send(()).unwrap();
                begin.send(()).unwrap();
            }
        };
        std::thread::spawn(move || tasks.upgrade().unwrap().run_after(give));
        is_answered(&mut said).await;
        for _ in 0..100 {
            ask.send(()).unwrap();
            is_answered(&mut said).await;
        }
    }

    #[tokio::test]
    async fn while_a_caller_is_alone_tokio_runs_all_where_it_runs_one() {
        let (engine, tasks) = engine().await;
        let tasks = tasks.upgrade().unwrap();
        // One turn of the first task.
        let turn = |task: &Task| tasks.poll(task, &mut Context::from_waker(Waker::noop())).is_pending();
        tasks.wake_by(|| engine.give(1));
        assert!(turn(&tasks.tasks[0]));
        assert_eq!(engine.sum(), 0);
        assert!(turn(&tasks.tasks[1]));
        assert_eq!((engine.sum(), engine.told()), (1, 0));
        assert!(turn(&tasks.tasks[0]));
        assert_eq!(engine.told(), 1);

        tasks.run_after(|| ());
        engine.give(1);
        assert!(turn(&tasks.tasks[0]));
        assert_eq!((engine.sum(), engine.told()), (2, 1));
    }

    #[tokio::test]
    async fn a_caller_whose_turn_is_nearly_over_runs_them_all_the_same() {
        let (engine, tasks) = engine().await;
        let caller = tokio::spawn(poll_fn(move |cx| {
            while tokio::task::coop::has_budget_remaining() {
                assert!(pin!(tokio::task::coop::consume_budget()).poll(cx).is_ready());
            }
            tasks.upgrade().unwrap().run_after(|| engine.give(1));
            Poll::Ready(engine.sum())
        }));
        assert_eq!(caller.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_caller_does_one_piece_of_what_others_want_and_tokio_does_the_rest() {
        let done = Arc::new(AtomicU64::new(0));
        let (begin, start) = oneshot::channel::<()>();
        let ((), tasks) = make(bell::bell().ok(), async {
            let done = Arc::clone(&done);
            Tasks::spawn(async move {
                start.await.unwrap();
                for _ in 0..1_000 {
                    turn().await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        })
        .await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        tasks.upgrade().unwrap().run_after(|| begin.send(()).unwrap());
        assert_eq!(done.load(Ordering::Relaxed), 1);
        until(|| done.load(Ordering::Relaxed) == 1_000).await;
    }

    #[tokio::test]
    async fn work_that_panics_holds_nothing() {
        let (engine, tasks) = engine().await;
        let tasks = tasks.upgrade().unwrap();
        let work = AssertUnwindSafe(|| tasks.run_after(|| panic!("as it was told to")));
        catch_unwind(work).unwrap_err();
        engine.give(1);
        until(|| engine.told() == 1).await;
    }

    #[tokio::test]
    async fn what_they_spawn_is_in_the_runtime_they_were_made_in() {
        let (tell, mut told) = unbounded_channel();
        let (give, given) = oneshot::channel::<()>();
        let ((), tasks) = make(bell::bell().ok(), async move {
            Tasks::spawn(async move {
                given.await.unwrap();
                Tasks::spawn(async move {
                    Tasks::sleep(Duration::from_millis(1)).await;
                    tell.send(()).unwrap();
                });
            });
        })
        .await;
        // A thread that is in no runtime.
        std::thread::spawn(move || tasks.upgrade().unwrap().run_after(|| give.send(()).unwrap()))
            .join()
            .unwrap();
        told.recv().await.unwrap();
    }
}
