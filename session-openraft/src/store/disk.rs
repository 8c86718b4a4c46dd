//! What a store asks of an operating system, small enough that a test can take the power away between any two
//! steps.

use super::error::StoreError;
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{self, Path, PathBuf};

/// One directory. A file made, renamed or removed is so for good once the directory is synced, and what was
/// written to a file once the file is.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// The path of a name, for messages; of the directory for an empty name.
    fn path(&self, name: &str) -> PathBuf;
    /// The names in it.
    fn names(&self) -> io::Result<Vec<String>>;
    /// A file for a database, made if it is missing.
    fn database(&self, name: &str) -> io::Result<Box<dyn StorageBackend>>;
    /// Reads a file.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;
    /// Makes a file, or empties it.
    fn create(&self, name: &str) -> io::Result<Box<dyn SyncedFile>>;
    /// Puts a file in the place of another.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is being written.
pub trait SyncedFile: Write + Send {
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
}

impl SyncedFile for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// How the name of a file that is not yet in place ends.
pub(super) const UNFINISHED: &str = ".tmp";

/// Writes a file and puts it in place, or leaves all as it was. Returns only when that is durable.
pub(super) fn put<E: From<io::Error>>(
    disk: &dyn Disk,
    name: &str,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let unfinished = format!("{name}{UNFINISHED}");
    let file = disk.create(&unfinished)?;
    let written = fill(file, write).and_then(|()| Ok(disk.rename(&unfinished, name)?));
    if written.is_err() {
        // It may be what filled the disk. If it stays, the next start removes it.
        let _ = disk.remove(&unfinished);
    }
    written?;
    disk.sync()?;
    Ok(())
}

fn fill<E: From<io::Error>>(
    mut file: Box<dyn SyncedFile>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    write(&mut file)?;
    file.flush()?;
    file.sync()?;
    Ok(())
}

/// A directory of the file system, locked.
#[derive(Debug)]
pub struct Folder {
    /// Absolute: a relative path means another directory once the process goes elsewhere.
    dir: PathBuf,
    /// Locked for as long as it is open.
    lock: File,
}

/// The lock's file.
const LOCK: &str = "lock";

impl Folder {
    /// Makes the directory if it is missing, and locks it.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let refused = |path: &Path, error: &io::Error| StoreError::io(path.to_owned(), error);
        if dir.as_os_str().is_empty() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "its name is empty; name a directory");
            return Err(refused(Path::new("the node's directory"), &error));
        }
        let dir = &path::absolute(dir).map_err(|error| refused(dir, &error))?;
        match fs::metadata(dir) {
            Ok(found) if !found.is_dir() => return Err(StoreError::NotADirectory { path: dir.to_owned() }),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_dir(dir)?,
            Err(error) => return Err(refused(dir, &error)),
        }
        let path = dir.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| refused(&path, &error))?;
        match lock.try_lock() {
            Ok(()) => {
                // Snapshots are new files. Better to know now than when one is due.
                let probe = dir.join(format!("{LOCK}{UNFINISHED}"));
                File::create(&probe)
                    .and_then(|_| fs::remove_file(&probe))
                    .map_err(|error| refused(dir, &error))?;
                Ok(Self { dir: dir.clone(), lock })
            }
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path }),
            Err(TryLockError::Error(error)) => Err(refused(&path, &error)),
        }
    }
}

impl Folder {
    /// Where a file is, as long as the directory is where it was opened. Another may have taken its place, and be
    /// another node's.
    fn find(&self, name: &str) -> io::Result<PathBuf> {
        match fs::metadata(self.dir.join(LOCK)) {
            Ok(found) if is_same(&found, &self.lock.metadata()?) => Ok(self.dir.join(name)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Err(io::Error::other(
                "its directory was moved, replaced or removed while this node has it open; stop the node, and open it \
                 where its directory is now",
            )),
        }
    }
}

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Elsewhere a directory stays where it is while a file in it is open.
#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// Makes a directory and those above it, durably.
fn make_dir(dir: &Path) -> Result<(), StoreError> {
    let above = match dir.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    if !above.exists() {
        make_dir(above)?;
    }
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_dir(above),
    }
    .map_err(|error| match StoreError::io(above.to_owned(), &error) {
        StoreError::Io { kind, message, .. } => StoreError::Io { path: dir.to_owned(), kind, message },
        // It is the one above that may not be written, or has no room.
        error => error,
    })
}

/// Makes a directory's names durable, where the operating system lets a directory be opened.
fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

impl Disk for Folder {
    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.dir.clone() } else { self.dir.join(name) }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.find("")?)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn database(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(self.find(name)?)?;
        Ok(Box::new(FileBackend::new(file).map_err(|error| io::Error::other(error.to_string()))?))
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.find(name)?)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn SyncedFile>> {
        Ok(Box::new(File::create(self.find(name)?)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.find(from)?, self.find(to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.find(name)?)
    }

    fn sync(&self) -> io::Result<()> {
        sync_dir(&self.find("")?)
    }
}
