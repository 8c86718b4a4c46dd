//! Where a client writes itself down.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A crash at any moment leaves the file with these bytes or with those before.
pub(crate) fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        // The name, too, must be on disk.
        Some(dir) if cfg!(unix) => File::open(dir)?.sync_all(),
        _ => Ok(()),
    }
}
