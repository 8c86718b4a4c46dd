//! The file below the log's database, which can be opened without being changed.

use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A database repairs its file as it opens it. Here it repairs a copy in memory, until
/// [`release`](Self::release) says that all else of the store is in order too.
#[derive(Clone, Debug)]
pub(super) struct Backend(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Box<dyn StorageBackend>,
    held: Mutex<Vec<Step>>,
    /// So that nothing has to be locked once the steps are let go.
    released: OnceLock<()>,
}

#[derive(Debug)]
enum Step {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

impl Backend {
    pub(super) fn held(file: Box<dyn StorageBackend>) -> Self {
        Self(Arc::new(Inner { file, held: Mutex::default(), released: OnceLock::new() }))
    }

    /// Does to the file what was held back, in the same order, and holds nothing back from now on.
    pub(super) fn release(&self) -> io::Result<()> {
        let mut held = self.steps();
        for step in held.drain(..) {
            match step {
                Step::Write(offset, data) => self.0.file.write(offset, &data)?,
                Step::SetLen(len) => self.0.file.set_len(len)?,
                Step::Sync => self.0.file.sync_data()?,
            }
        }
        let _ = self.0.released.set(());
        Ok(())
    }

    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a step now, or keeps it for later.
    fn step(
        &self,
        now: impl FnOnce(&dyn StorageBackend) -> io::Result<()>,
        later: impl FnOnce() -> Step,
    ) -> io::Result<()> {
        if self.0.released.get().is_none() {
            let mut held = self.steps();
            if self.0.released.get().is_none() {
                held.push(later());
                return Ok(());
            }
        }
        now(&*self.0.file)
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        let held = self.steps();
        let set =
            held.iter().rev().find_map(|step| if let Step::SetLen(len) = step { Some(*len) } else { None });
        set.map_or_else(|| self.0.file.len(), Ok)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.0.released.get().is_some() {
            return self.0.file.read(offset, out);
        }
        let held = self.steps();
        let mut len = self.0.file.len()?;
        let there = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let (inside, beyond) = out.split_at_mut(there);
        self.0.file.read(offset, inside)?;
        beyond.fill(0);
        for step in held.iter() {
            match step {
                Step::Write(start, data) => overlay(offset, out, *start, data),
                Step::SetLen(new) => {
                    let kept =
                        usize::try_from(new.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
                    if *new < len {
                        out[kept..].fill(0);
                    }
                    len = *new;
                }
                Step::Sync => {}
            }
        }
        if offset.saturating_add(out.len() as u64) > len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step(|file| file.set_len(len), || Step::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(StorageBackend::sync_data, || Step::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step(|file| file.write(offset, data), || Step::Write(offset, data.to_vec()))
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.close()
    }
}

/// Copies what of `data`, which is to be at `start`, falls on `out`, which is at `offset`.
fn overlay(offset: u64, out: &mut [u8], start: u64, data: &[u8]) {
    let from = start.max(offset);
    let to = (start + data.len() as u64).min(offset + out.len() as u64);
    if from < to {
        let within = |position: u64, base: u64| usize::try_from(position - base).unwrap_or(usize::MAX);
        out[within(from, offset)..within(to, offset)]
            .copy_from_slice(&data[within(from, start)..within(to, start)]);
    }
}
