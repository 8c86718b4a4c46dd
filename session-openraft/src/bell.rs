//! How a thread that is none of tokio's wakes a task of tokio's.
//!
//! If it just wakes the task, tokio wakes two of its threads: one to run it, and that one another, to look whether there is
//! more. With few processors the two and the thread that woke them drive each other from one processor to the next, and
//! that takes longer than a command. A bell is heard by the thread that waits for I/O, and no other wakes. Its place is
//! where there is something to do for one thread only.

#[cfg(not(unix))]
pub(crate) use none::{Bell, Listener, bell};
#[cfg(unix)]
pub(crate) use pipe::{Bell, Listener, bell};

#[cfg(unix)]
mod pipe {
    use std::fs::File;
    use std::future::poll_fn;
    use std::io::{self, Write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::pin::Pin;
    use tokio::io::{AsyncRead, ReadBuf};
    use tokio::net::unix::pipe::{Receiver, pipe};

    pub(crate) struct Bell {
        pipe: File,
        /// Writing into a pipe that nobody can read may end the process.
        _reader: OwnedFd,
    }

    pub(crate) struct Listener(Receiver);

    /// A bell, and who hears it in this runtime. Panics outside of a tokio runtime, and in one without I/O.
    pub(crate) fn bell() -> io::Result<(Bell, Listener)> {
        let (sender, receiver) = pipe()?;
        let (pipe, reader) = (sender.into_nonblocking_fd()?, receiver.as_fd().try_clone_to_owned()?);
        Ok((Bell { pipe: pipe.into(), _reader: reader }, Listener(receiver)))
    }

    impl Bell {
        /// Waits for nobody: it fails where so many rings are still to be heard that there is no place for one more.
        pub(crate) fn ring(&self) -> io::Result<()> {
            (&self.pipe).write_all(&[0])
        }
    }

    impl Listener {
        /// Waits until it is rung. Several rings may be heard as one.
        pub(crate) async fn rung(&mut self) -> io::Result<()> {
            let mut rings = [0; 64];
            poll_fn(|cx| Pin::new(&mut self.0).poll_read(cx, &mut ReadBuf::new(&mut rings))).await
        }
    }
}

/// Where tokio listens to no pipe.
#[cfg(not(unix))]
mod none {
    use std::future::Ready;
    use std::io;

    pub(crate) enum Bell {}
    pub(crate) enum Listener {}

    pub(crate) fn bell() -> io::Result<(Bell, Listener)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Bell {
        pub(crate) fn ring(&self) -> io::Result<()> {
            match *self {}
        }
    }

    impl Listener {
        pub(crate) fn rung(&mut self) -> Ready<io::Result<()>> {
            match *self {}
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::bell;
    use std::io::ErrorKind;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn rings_are_heard_whenever_they_were() {
        let (bell, mut listener) = bell().unwrap();
        for rings in [1, 3, 1_000] {
            assert!(timeout(Duration::from_millis(1), listener.rung()).await.is_err(), "nobody rang");
            (0..rings).for_each(|_| bell.ring().unwrap());
            listener.rung().await.unwrap();
            // Many are heard as fewer.
            while timeout(Duration::from_millis(1), listener.rung()).await.is_ok() {}
        }
        let heard = tokio::spawn(async move { listener.rung().await });
        tokio::task::yield_now().await;
        std::thread::spawn(move || bell.ring().unwrap()).join().unwrap();
        heard.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn whoever_rings_waits_for_nobody() {
        let (bell, mut listener) = bell().unwrap();
        let full = (0..1_000_000).find_map(|_| bell.ring().err()).unwrap();
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        listener.rung().await.unwrap();
    }

    #[tokio::test]
    async fn ringing_where_nobody_listens_harms_nobody() {
        let (bell, listener) = bell().unwrap();
        drop(listener);
        bell.ring().unwrap();
    }
}
