//! How the thread that writes the log wakes a task of tokio's.
//!
//! If it just wakes the task, tokio wakes two of its threads: one to run it, and that one another, to look whether there is
//! more. With few processors the two and the thread that woke them drive each other from one processor to the next, and
//! that takes longer than a command. A bell is heard by the thread that waits for I/O, and no other wakes.
//!
//! But that thread may be busy with something else, and then nobody hears it; or it goes on with what the bell woke, and
//! nobody waits for I/O meanwhile. So it is rung only by a thread that expects to have more to do soon, and that makes up
//! for it as soon as that turns out to be wrong: it wakes the listener as any task is woken.

use crate::service::lock;
#[cfg(not(unix))]
use none::{Pipe, Reader, pipe};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
#[cfg(unix)]
use unix::{Pipe, Reader, pipe};

thread_local! {
    /// Whether this thread expects to have more to do soon.
    static EXPECTS: Cell<bool> = const { Cell::new(false) };
    /// What it rang last, and has to make up for.
    static RUNG: RefCell<Option<Rung>> = const { RefCell::new(None) };
}

/// Lets this thread ring until it says otherwise, if it expects to have more to do soon. If that does not come, it has to
/// call [`make_up`].
pub(crate) fn expect(more: bool) {
    EXPECTS.set(more);
}

/// Whether this thread has to make up for a ring.
pub(crate) fn has_rung() -> bool {
    RUNG.with_borrow(Option::is_some)
}

/// Nothing came that was expected: whoever should have heard this thread is woken, and so is somebody who waits for I/O.
pub(crate) fn make_up() {
    drop(RUNG.take());
}

pub(crate) struct Bell {
    pipe: Pipe,
    listener: Mutex<Option<Waker>>,
    /// The listener was woken without a ring.
    woken: AtomicBool,
}

/// A thread that ends makes up for it, too.
struct Rung(Arc<Bell>);

pub(crate) struct Listener {
    reader: Reader,
    bell: Arc<Bell>,
}

/// A bell, and who hears it in this runtime. Panics outside of a tokio runtime, and in one without I/O.
pub(crate) fn bell() -> io::Result<(Arc<Bell>, Listener)> {
    let (pipe, reader) = pipe()?;
    let bell = Arc::new(Bell { pipe, listener: Mutex::default(), woken: AtomicBool::new(false) });
    Ok((Arc::clone(&bell), Listener { reader, bell }))
}

impl Bell {
    /// Rings, if this thread may, and has not rung another. Waits for nobody: where so many rings are still to be heard that
    /// there is no place for one more, it does not ring.
    pub(crate) fn ring(self: &Arc<Self>) -> bool {
        let may = EXPECTS.get()
            && RUNG.with_borrow_mut(|rung| {
                Arc::ptr_eq(&rung.get_or_insert_with(|| Rung(Arc::clone(self))).0, self)
            });
        may && self.pipe.write().is_ok()
    }

    /// Wakes the listener as any task is woken.
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        let listener = lock(&self.listener).take();
        if let Some(listener) = listener {
            listener.wake();
        }
    }
}

impl Drop for Rung {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Listener {
    /// Waits until it is rung, or woken. Several rings may be heard as one.
    pub(crate) async fn rung(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_rung(cx)).await
    }

    fn poll_rung(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        *lock(&self.bell.listener) = Some(cx.waker().clone());
        if self.bell.woken.swap(false, Ordering::AcqRel) {
            return Poll::Ready(Ok(()));
        }
        self.reader.poll_read(cx)
    }
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io::{self, Write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, ReadBuf};
    use tokio::net::unix::pipe::{self, Receiver};

    pub(super) struct Pipe {
        sender: File,
        /// Writing into a pipe that nobody can read may end the process.
        _receiver: OwnedFd,
    }

    pub(super) struct Reader(Receiver);

    pub(super) fn pipe() -> io::Result<(Pipe, Reader)> {
        let (sender, receiver) = pipe::pipe()?;
        let (sender, other) = (sender.into_nonblocking_fd()?, receiver.as_fd().try_clone_to_owned()?);
        Ok((Pipe { sender: sender.into(), _receiver: other }, Reader(receiver)))
    }

    impl Pipe {
        pub(super) fn write(&self) -> io::Result<()> {
            (&self.sender).write_all(&[0])
        }
    }

    impl Reader {
        pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let mut rings = [0; 64];
            Pin::new(&mut self.0).poll_read(cx, &mut ReadBuf::new(&mut rings))
        }
    }
}

/// Where tokio listens to no pipe.
#[cfg(not(unix))]
mod none {
    use std::io;
    use std::task::{Context, Poll};

    pub(super) enum Pipe {}
    pub(super) enum Reader {}

    pub(super) fn pipe() -> io::Result<(Pipe, Reader)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Pipe {
        pub(super) fn write(&self) -> io::Result<()> {
            match *self {}
        }
    }

    impl Reader {
        pub(super) fn poll_read(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    async fn hears(listener: &mut Listener) -> bool {
        match timeout(Duration::from_millis(1), listener.rung()).await {
            Ok(rung) => {
                rung.unwrap();
                true
            }
            Err(_) => false,
        }
    }

    #[tokio::test]
    async fn rings_are_heard_whenever_they_were() {
        let (bell, mut listener) = bell().unwrap();
        for rings in [1, 3, 1_000] {
            assert!(!hears(&mut listener).await, "nobody rang");
            in_a_thread(|| {
                expect(true);
                assert!((0..rings).all(|_| bell.ring()));
                // It ends without a word, and another is for that.
                std::mem::forget(RUNG.take());
            });
            listener.rung().await.unwrap();
            // Many are heard as fewer.
            while hears(&mut listener).await {}
        }
        let heard = tokio::spawn(async move { listener.rung().await });
        tokio::task::yield_now().await;
        expect(true);
        assert!(bell.ring());
        heard.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_ring_is_made_up_for_when_nothing_follows_or_the_thread_ends() {
        let (bell, mut listener) = bell().unwrap();
        for ends in [false, true] {
            in_a_thread(|| {
                expect(true);
                assert!(!has_rung());
                assert!(bell.ring() && has_rung());
                if !ends {
                    make_up();
                    assert!(!has_rung());
                }
            });
            listener.rung().await.unwrap();
            // Once for the ring, and once for what was made up for.
            assert!(hears(&mut listener).await);
            assert!(!hears(&mut listener).await);
        }
    }

    #[tokio::test]
    async fn who_expects_nothing_does_not_ring() {
        let (first, mut heard) = bell().unwrap();
        let (second, _listener) = bell().unwrap();
        in_a_thread(|| {
            assert!(!first.ring());
            expect(true);
            assert!(first.ring() && !second.ring(), "who has rung one makes up for it before another");
            make_up();
            assert!(second.ring());
            expect(false);
            assert!(!second.ring());
        });
        assert!(hears(&mut heard).await);
    }

    #[tokio::test]
    async fn whoever_rings_waits_for_nobody() {
        let (bell, mut listener) = bell().unwrap();
        expect(true);
        assert!((0..1_000_000).any(|_| !bell.ring()), "the pipe is full");
        listener.rung().await.unwrap();
    }

    #[tokio::test]
    async fn ringing_where_nobody_listens_harms_nobody() {
        let (bell, listener) = bell().unwrap();
        drop(listener);
        expect(true);
        assert!(bell.ring());
    }
}
