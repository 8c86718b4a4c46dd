//! The byte form of a snapshot.
//!
//! ```text
//! header   "SESSNAP\0"  format: u32  checksum: u64
//! block    kind: u8  length: u64  body  checksum: u64
//! ```
//!
//! Numbers are little-endian. The first block is the meta data (kind 1), then one block for each entry in
//! ascending order of keys (kind 2: key length as u32, key, value), then the end (kind 3: the number of
//! entries as u64), and nothing after it. A checksum covers its block from the kind on (the header from the
//! magic on), seeded with the checksum before it.

use super::{Part, Snapshot, SnapshotMeta};
use crate::codec::{self, chained_checksum};
use crate::error::SnapshotError;
use bytes::Bytes;
use std::io::{Read, Write};

const MAGIC: [u8; 8] = *b"SESSNAP\0";
const FORMAT: u32 = 1;

const META: u8 = 1;
const ENTRY: u8 = 2;
const END: u8 = 3;

/// A block that claims more is damaged: no machine has the memory for it.
const MAX_BODY: u64 = 1 << 38;

pub(super) fn write(snapshot: &Snapshot, out: &mut impl Write) -> Result<(), SnapshotError> {
    let mut out = BlockWriter { out, checksum: 0 };
    out.piece(&[&MAGIC, &FORMAT.to_le_bytes()])?;
    let meta = codec::encode_state(&snapshot.meta)
        .map_err(|error| SnapshotError::Value { key: "(meta)".to_owned(), problem: error.to_string() })?;
    out.block(META, &[&meta])?;
    let mut count = 0u64;
    snapshot.for_each(&mut |key, value| {
        count = count.saturating_add(1);
        let Ok(length) = u32::try_from(key.len()) else {
            let (key, problem) = (key.chars().take(64).collect(), "the key is too long".to_owned());
            return Err(SnapshotError::Value { key, problem });
        };
        out.block(ENTRY, &[&length.to_le_bytes(), key.as_bytes(), &value])
    })?;
    out.block(END, &[&count.to_le_bytes()])
}

struct BlockWriter<'a, W> {
    out: &'a mut W,
    checksum: u64,
}

impl<W: Write> BlockWriter<'_, W> {
    fn block(&mut self, kind: u8, body: &[&[u8]]) -> Result<(), SnapshotError> {
        let length: u64 = body.iter().map(|piece| piece.len() as u64).sum();
        let (kind, length) = ([kind], length.to_le_bytes());
        let head: [&[u8]; 2] = [&kind, &length];
        self.piece(&[&head, body].concat())
    }

    fn piece(&mut self, bytes: &[&[u8]]) -> Result<(), SnapshotError> {
        self.checksum = chained_checksum(self.checksum, bytes);
        for piece in bytes {
            self.out.write_all(piece)?;
        }
        self.out.write_all(&self.checksum.to_le_bytes())?;
        Ok(())
    }
}

pub(super) fn read(input: impl Read) -> Result<Snapshot, SnapshotError> {
    let mut input = BlockReader { input, checksum: 0, block: 0 };
    input.header()?;
    let (kind, body) = input.block()?;
    if kind != META {
        return Err(input.damaged());
    }
    let meta: SnapshotMeta = codec::decode_state(&body).map_err(|_| input.damaged())?;
    let mut parts: Vec<Part> = Vec::new();
    loop {
        let (kind, body) = input.block()?;
        match kind {
            ENTRY => {
                let part = entry(body).ok_or_else(|| input.damaged())?;
                if parts.last().is_some_and(|last| last.key >= part.key) {
                    return Err(input.damaged());
                }
                parts.push(part);
            }
            END if body[..] == (parts.len() as u64).to_le_bytes() => break,
            _ => return Err(input.damaged()),
        }
    }
    input.end()?;
    Ok(Snapshot { meta, parts: parts.into() })
}

/// Splits an entry's body without copying its value.
fn entry(body: Vec<u8>) -> Option<Part> {
    let mut body = Bytes::from(body);
    let length = u32::from_le_bytes(*body.first_chunk::<4>()?);
    let length = usize::try_from(length).ok()?;
    let end = length.checked_add(4)?;
    let key = std::str::from_utf8(body.get(4..end)?).ok()?.to_owned();
    let value = body.split_off(end);
    Some(Part::ready(key, value))
}

struct BlockReader<R> {
    input: R,
    checksum: u64,
    /// The number of the block being read; the header is 0.
    block: u64,
}

impl<R: Read> BlockReader<R> {
    fn header(&mut self) -> Result<(), SnapshotError> {
        let mut magic = [0; MAGIC.len()];
        self.input.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(SnapshotError::NotASnapshot);
        }
        let mut format = [0; 4];
        self.input.read_exact(&mut format)?;
        self.check(&[&magic, &format])?;
        match u32::from_le_bytes(format) {
            FORMAT => Ok(()),
            version => Err(SnapshotError::UnknownFormat { version }),
        }
    }

    fn block(&mut self) -> Result<(u8, Vec<u8>), SnapshotError> {
        self.block = self.block.saturating_add(1);
        let mut kind = [0];
        self.input.read_exact(&mut kind)?;
        let mut length = [0; 8];
        self.input.read_exact(&mut length)?;
        let claimed = u64::from_le_bytes(length);
        if claimed > MAX_BODY {
            return Err(self.damaged());
        }
        // Grows with what arrives, never with what is claimed. An input that ends too early ends before the checksum.
        let mut body = Vec::new();
        self.input.by_ref().take(claimed).read_to_end(&mut body)?;
        self.check(&[&kind, &length, &body])?;
        let [kind] = kind;
        Ok((kind, body))
    }

    fn check(&mut self, bytes: &[&[u8]]) -> Result<(), SnapshotError> {
        self.checksum = chained_checksum(self.checksum, bytes);
        let mut found = [0; 8];
        self.input.read_exact(&mut found)?;
        if found == self.checksum.to_le_bytes() { Ok(()) } else { Err(self.damaged()) }
    }

    fn end(&mut self) -> Result<(), SnapshotError> {
        // `read` itself may be interrupted; `read_exact` retries.
        match self.input.read_exact(&mut [0]) {
            Ok(()) => Err(SnapshotError::Trailing),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn damaged(&self) -> SnapshotError {
        SnapshotError::Damaged { block: self.block }
    }
}
