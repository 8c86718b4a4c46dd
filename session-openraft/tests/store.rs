//! Damaged, missing, locked and full: each is an error that names the file and says what to do, and a refused
//! directory is left as it was.

mod common;

use bytes::Bytes;
use common::disk::TestDisk;
use common::snapshot;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader, Vote};
use session_openraft::TypeConfig;
use session_openraft::store::{Store, StoreError};
use std::collections::BTreeMap;
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

type Files = BTreeMap<String, Vec<u8>>;

fn id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 1), index)
}

fn entry(index: u64, size: usize) -> Entry<TypeConfig> {
    let payload = EntryPayload::Normal(Bytes::from(vec![index.to_le_bytes()[0]; size]).into());
    Entry { log_id: id(index), payload }
}

fn open(disk: &TestDisk) -> Result<Store<TypeConfig>, StoreError> {
    Store::open_on(Arc::new(disk.clone()))
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// A snapshot up to 20, and a log from 11 to 42, the last three each with a sync of their own.
async fn fill(store: &mut Store<TypeConfig>) {
    store.log.save_vote(&Vote::new(1, 1)).await.expect("a vote");
    store.log.blocking_append((0..40).map(|index| entry(index, 300))).await.expect("an append");
    store.snapshots.save(20, &snapshot(5000).with_engine(1, Bytes::new())).expect("a snapshot");
    store.log.purge(id(10)).await.expect("a purge");
    for index in 40..43 {
        store.log.blocking_append([entry(index, 300)]).await.expect("an append");
    }
}

/// The files of a store that was closed, and of one whose process was killed.
fn both() -> [(&'static str, Files); 2] {
    let disk = TestDisk::new();
    let mut store = open(&disk).expect("a store");
    block_on(fill(&mut store));
    let killed = disk.files();
    drop(store);
    [("closed", disk.files()), ("killed", killed)]
}

/// Everything that a store holds.
fn content(mut store: Store<TypeConfig>) -> String {
    block_on(async {
        let state = store.log.get_log_state().await.expect("a state");
        let vote = store.log.read_vote().await.expect("a vote");
        let entries = store.log.try_get_log_entries(..).await.expect("entries");
        let all: Vec<_> = entries.iter().map(|entry| (entry.log_id.index, bytes_of(entry))).collect();
        let snapshot = store.snapshots.load().expect("a snapshot").map(|snapshot| snapshot.to_bytes());
        format!("{state:?} {vote:?} {all:?} {snapshot:?}")
    })
}

fn bytes_of(entry: &Entry<TypeConfig>) -> &[u8] {
    match &entry.payload {
        EntryPayload::Normal(proposal) => proposal.as_ref(),
        _ => &[],
    }
}

fn log_and_snapshot(files: &Files) -> [String; 2] {
    let snapshot = files.keys().find(|name| name.starts_with("snapshot-")).expect("a snapshot");
    ["log.redb".to_owned(), snapshot.clone()]
}

/// Opens what is not as it was written: it is refused - an error that names the file and says what to do, with
/// nothing changed - or all of it is read as it was written.
fn assert_refused_or_whole(files: &Files, file: &str, whole: &str, what: &str) -> Option<StoreError> {
    let disk = TestDisk::of(files);
    match open(&disk) {
        Ok(store) => {
            assert!(content(store) == whole, "{what} changed what is read");
            None
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains(file), "{what}: {file} is not named: {message}");
            assert!(
                message.contains("put ") || message.contains("run a newer build"),
                "what to do? {message}"
            );
            assert!(disk.files() == *files, "{what}: a refused directory was changed: {message}");
            Some(error)
        }
    }
}

fn whole(files: &Files) -> String {
    content(open(&TestDisk::of(files)).expect("a store"))
}

#[test]
fn a_flipped_bit_is_refused_or_harmless() {
    for (how, files) in both() {
        let expected = whole(&files);
        for name in log_and_snapshot(&files) {
            let mut refused = 0;
            for position in positions(&files[&name]) {
                let mut damaged = files.clone();
                damaged.get_mut(&name).expect("the file")[position] ^= 1 << (position % 8);
                let what = format!("{how}: a flip in byte {position} of {name}");
                refused += u64::from(assert_refused_or_whole(&damaged, &name, &expected, &what).is_some());
            }
            assert!(refused > 100, "{how}: {name} was refused only {refused} times");
        }
    }
}

/// The file that says how much of the log is durable is never synced, so a power cut may leave it in any state.
#[test]
fn a_log_without_its_number_of_commits_is_whole() {
    for (how, files) in both() {
        let expected = whole(&files);
        let number = &files["log.commits"];
        let mut found: Vec<Vec<u8>> = (0..number.len()).map(|kept| number[..kept].to_vec()).collect();
        found.extend((0..number.len()).map(|position| {
            let mut flipped = number.clone();
            flipped[position] ^= 1 << (position % 8);
            flipped
        }));
        found.push(vec![0; number.len()]);
        for bytes in found {
            let mut files = files.clone();
            let what = format!("{how}: {bytes:?} in log.commits");
            files.insert("log.commits".to_owned(), bytes);
            assert_eq!(assert_refused_or_whole(&files, "log.commits", &expected, &what), None);
        }
        let mut without = files.clone();
        without.remove("log.commits");
        assert_eq!(assert_refused_or_whole(&without, "log.commits", &expected, how), None);
    }
}

/// A log of an earlier day beside the files of today.
#[test]
fn a_log_that_has_less_than_was_durable_is_refused() {
    let disk = TestDisk::new();
    let mut store = open(&disk).expect("a store");
    block_on(store.log.blocking_append([entry(0, 10)])).expect("an append");
    let earlier = disk.files()["log.redb"].clone();
    block_on(store.log.save_vote(&Vote::new(2, 1))).expect("a vote");
    let mut files = disk.files();
    let expected = whole(&files);
    files.insert("log.redb".to_owned(), earlier);
    let error = assert_refused_or_whole(&files, "log.redb", &expected, "an earlier log").expect("a refusal");
    assert!(error.to_string().contains("the last 1 of its changes, which were durable,"), "{error}");
    // A log that is shorter because it was cut back is not that.
    block_on(store.log.truncate(id(0))).expect("a truncation");
    assert!(content(open(&TestDisk::of(&disk.files())).expect("a store")).contains("[]"));
}

/// Some bytes of a file: all of its beginning, and then some of what is not empty.
fn positions(bytes: &[u8]) -> Vec<usize> {
    let beginning = 0..bytes.len().min(400);
    let rest = (400..bytes.len()).filter(|position| bytes[*position] != 0).step_by(37);
    beginning.chain(rest).collect()
}

#[test]
fn a_cut_file_is_refused_or_harmless() {
    for (how, files) in both() {
        let expected = whole(&files);
        for name in log_and_snapshot(&files) {
            let length = files[&name].len();
            for kept in (0..length).step_by(length / 50).chain([length - 1]) {
                let mut damaged = files.clone();
                damaged.get_mut(&name).expect("the file").truncate(kept);
                let what = format!("{how}: {name} cut to {kept} of {length} bytes");
                assert!(
                    assert_refused_or_whole(&damaged, &name, &expected, &what).is_some(),
                    "{what} was accepted"
                );
            }
        }
    }
}

#[test]
fn a_missing_file_is_refused() {
    for (how, files) in both() {
        let [log, snapshot] = log_and_snapshot(&files);
        let expected = whole(&files);
        let without = |name: &str| {
            let mut files = files.clone();
            files.remove(name);
            files
        };
        let error = assert_refused_or_whole(&without(&log), &log, &expected, how);
        assert!(matches!(error, Some(StoreError::MissingLog { .. })), "{how}: {error:?}");
        let error = assert_refused_or_whole(&without(&snapshot), "snapshot-10-1.session", &expected, how);
        assert!(matches!(error, Some(StoreError::MissingSnapshot { .. })), "{how}: {error:?}");
        // Without both, the marker still says that there was something.
        let mut neither = without(&log);
        neither.remove(&snapshot);
        let error = assert_refused_or_whole(&neither, &log, &expected, how);
        assert!(matches!(error, Some(StoreError::MissingLog { .. })), "{how}: {error:?}");
        // The marker alone is made again.
        assert_eq!(assert_refused_or_whole(&without("store"), "store", &expected, how), None);
    }
}

/// As a node does it: a snapshot of the machine's beginning, then its name, then its log.
#[test]
fn the_store_of_a_machine_is_refused_to_another_and_without_its_snapshot() {
    let disk = TestDisk::new();
    let mut store = open(&disk).expect("a store");
    store.snapshots.save(0, &snapshot(10)).expect("a snapshot");
    block_on(store.belongs_to("Bank")).expect("nobody's so far");
    let unused = disk.files();
    block_on(store.log.blocking_append([entry(0, 10)])).expect("an append");
    drop(store);
    let store = open(&disk).expect("a store");
    block_on(store.belongs_to("Bank")).expect("the bank's");
    let error = block_on(store.belongs_to("Theatre")).expect_err("the bank's");
    let message = error.to_string();
    assert!(
        message.contains("disk/log.redb is the log of the machine `Bank`, not of `Theatre`"),
        "{message}"
    );
    block_on(store.belongs_to("Bank")).expect("still the bank's");
    drop(store);
    // It does not begin anew because its beginning was deleted, whoever opens it.
    for mut files in [unused, disk.files()] {
        let expected = whole(&files);
        files.remove("snapshot-0-0.session").expect("the beginning");
        let error = assert_refused_or_whole(&files, "disk/snapshot-0-0.session", &expected, "no beginning");
        assert!(matches!(error, Some(StoreError::MissingSnapshot { .. })), "{error:?}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let [(_, files), _] = both();
    let [log, snapshot] = log_and_snapshot(&files);
    let expected = whole(&files);
    // The snapshot of an older state beside the log.
    let mut older = files.clone();
    older.remove(&snapshot);
    let bytes = common::snapshot(10).with_engine(1, Bytes::new()).to_bytes().expect("bytes");
    older.insert("snapshot-5-1.session".to_owned(), bytes.clone());
    let error = assert_refused_or_whole(&older, &log, &expected, "an older snapshot");
    assert!(matches!(error, Some(StoreError::Gap { first: 11, snapshot: 5, .. })), "{error:?}");
    // A snapshot under another's name.
    let mut renamed = files.clone();
    let name = "snapshot-30-2.session";
    renamed.insert(name.to_owned(), files[&snapshot].clone());
    let error = assert_refused_or_whole(&renamed, name, &expected, "a renamed snapshot");
    assert!(matches!(error, Some(StoreError::Renamed { .. })), "{error:?}");
    // Something else under the name of the log.
    let mut other = files.clone();
    other.insert(log.clone(), b"something else".to_vec());
    let error = assert_refused_or_whole(&other, &log, &expected, "no log");
    assert!(matches!(error, Some(StoreError::DamagedLog { .. })), "{error:?}");
}

#[test]
fn what_was_left_unfinished_is_removed() {
    let [_, (_, mut files)] = both();
    let expected = whole(&files);
    files.insert("snapshot-30-1.session.tmp".to_owned(), b"half".to_vec());
    files.insert("log.redb.tmp".to_owned(), b"half".to_vec());
    files.insert("store.tmp".to_owned(), b"half".to_vec());
    // Saved, and the process ended before it removed the one before.
    let older = snapshot(10).with_engine(1, Bytes::new()).to_bytes().expect("bytes");
    files.insert("snapshot-15-1.session".to_owned(), older);
    let disk = TestDisk::of(&files);
    assert_eq!(content(open(&disk).expect("a store")), expected);
    let names: Vec<_> = disk.files().into_keys().collect();
    assert_eq!(names, ["log.commits", "log.redb", "snapshot-20-1.session", "store"]);
}

#[test]
fn a_store_is_made_although_an_earlier_attempt_was_interrupted() {
    for left in [&["log.redb.tmp"][..], &["store.tmp"], &["log.redb.tmp", "store.tmp"]] {
        let files = left.iter().map(|name| ((*name).to_owned(), b"half".to_vec())).collect();
        let disk = TestDisk::of(&files);
        drop(open(&disk).unwrap_or_else(|error| panic!("{left:?}: {error}")));
        let names: Vec<_> = disk.files().into_keys().collect();
        assert_eq!(names, ["log.commits", "log.redb", "store"], "{left:?}");
    }
}

#[test]
fn a_file_of_somebody_else_stays() {
    let [_, (_, mut files)] = both();
    let theirs =
        ["notes.tmp", "snapshot-1.session.tmp", "snapshot-01-1.session", "snapshot-1-1.session.bak", ".tmp"];
    for name in theirs {
        files.insert(name.to_owned(), b"theirs".to_vec());
    }
    let disk = TestDisk::of(&files);
    drop(open(&disk).expect("a store"));
    let found = disk.files();
    for name in theirs {
        assert_eq!(found.get(name).map(Vec::as_slice), Some(&b"theirs"[..]), "{name}");
    }
}

#[test]
fn a_snapshot_of_the_same_index_and_a_later_term_takes_the_place() {
    let disk = TestDisk::new();
    let store = open(&disk).expect("a store");
    for term in [1, 2, 2] {
        store.snapshots.save(7, &snapshot(10).with_engine(term, Bytes::new())).expect("a snapshot");
    }
    // One that was begun earlier and ended later does not.
    store.snapshots.save(6, &snapshot(10).with_engine(2, Bytes::new())).expect("nothing to do");
    drop(store);
    let store = open(&disk).expect("a store");
    assert_eq!(store.snapshots.index(), Some(7));
    assert_eq!(store.snapshots.load().expect("no failure").expect("a snapshot").meta().term, 2);
    assert!(disk.files().contains_key("snapshot-7-2.session"));
    assert_eq!(disk.files().len(), 4, "{disk:?}");
}

#[test]
fn a_full_disk_stops_the_log_and_loses_nothing() {
    let disk = TestDisk::new();
    let mut store = open(&disk).expect("a store");
    disk.set_capacity(Some(disk.used() + 100_000));
    let (next, error) = block_on(async {
        for index in 0.. {
            if let Err(error) = store.log.blocking_append([entry(index, 5000)]).await {
                return (index, error);
            }
        }
        unreachable!("an endless log on a small disk")
    });
    assert!(next > 10, "{next} entries");
    assert!(error.to_string().contains("the disk is full: disk/log.redb cannot grow"), "{error}");
    let again = block_on(store.log.save_vote(&Vote::new(3, 1))).expect_err("nothing is written any more");
    assert!(again.to_string().contains("the disk is full"), "{again}");
    drop(store);
    disk.set_capacity(None);
    let mut store = open(&disk).expect("a store");
    let entries = block_on(store.log.try_get_log_entries(..)).expect("entries");
    assert!(entries.len() as u64 >= next, "{} of {next} entries", entries.len());
}

#[test]
fn a_directory_is_made_locked_and_unlocked() {
    let place = TempDir::new().expect("a directory");
    let dir = place.path().join("some").join("where");
    let store = Store::<TypeConfig>::open(&dir).expect("a new directory");
    let theirs = dir.join("probe.tmp");
    std::fs::write(&theirs, "text").expect("a file");
    let error = Store::<TypeConfig>::open(&dir).expect_err("it is open");
    assert_eq!(error, StoreError::Locked { path: dir.join("lock") });
    assert!(error.to_string().contains("another node has this directory open"));
    // A reader of the log still has it open.
    let log = store.log.clone();
    drop(store);
    assert!(matches!(Store::<TypeConfig>::open(&dir), Err(StoreError::Locked { .. })));
    drop(log);
    Store::<TypeConfig>::open(&dir).expect("it is closed");
    assert_eq!(std::fs::read(&theirs).expect("the file"), b"text");
}

/// Where another process, or this one, puts something else in the place of an open directory.
#[cfg(unix)]
#[test]
fn a_directory_that_was_moved_gets_no_snapshot_and_nor_does_what_took_its_place() {
    let place = TempDir::new().expect("a directory");
    let (dir, moved) = (place.path().join("a"), place.path().join("moved"));
    let mut store = Store::<TypeConfig>::open(&dir).expect("a store");
    block_on(fill(&mut store));
    std::fs::rename(&dir, &moved).expect("a move");
    for replaced in [false, true] {
        let other = replaced.then(|| Store::<TypeConfig>::open(&dir).expect("another store"));
        let names = |dir: &Path| names(dir).unwrap_or_default();
        let before = (names(&dir), names(&moved));
        let error = store.snapshots.save(30, &snapshot(10).with_engine(1, Bytes::new())).unwrap_err();
        assert!(error.to_string().contains("a/snapshot-30-1.session"), "{error}");
        assert!(error.to_string().contains("was moved, replaced or removed"), "{error}");
        assert_eq!((names(&dir), names(&moved)), before);
        drop(other);
    }
    // The log is the same file, wherever it is.
    block_on(store.log.blocking_append([entry(43, 300)])).expect("an append");
    drop(store);
    let mut store = Store::<TypeConfig>::open(&moved).expect("the store");
    let state = block_on(store.log.get_log_state()).expect("a state");
    assert_eq!((store.snapshots.index(), state.last_log_id), (Some(20), Some(id(43))));
}

#[cfg(unix)]
fn names(dir: &Path) -> std::io::Result<Vec<std::ffi::OsString>> {
    let names: std::io::Result<Vec<_>> = std::fs::read_dir(dir)?.map(|file| Ok(file?.file_name())).collect();
    names.map(|mut names| {
        names.sort();
        names
    })
}

/// A process may go elsewhere while it has a node open.
#[cfg(unix)]
#[test]
fn a_relative_path_is_of_where_the_process_was() {
    let place = TempDir::new().expect("a directory");
    let here = std::env::current_dir().expect("a directory");
    let above: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let dir = place.path().join("node");
    let relative = above.join(dir.strip_prefix("/").expect("an absolute path"));
    let _store = Store::<TypeConfig>::open(&relative).expect("a store");
    let Err(StoreError::Locked { path }) = Store::<TypeConfig>::open(&relative) else { panic!("it is open") };
    assert!(path.is_absolute(), "{}", path.display());
    assert!(dir.join("store").exists());
}

#[test]
fn a_file_is_no_directory() {
    let place = TempDir::new().expect("a directory");
    let file = place.path().join("file");
    std::fs::write(&file, "text").expect("a file");
    let error = Store::<TypeConfig>::open(&file).expect_err("a file");
    assert_eq!(error, StoreError::NotADirectory { path: file.clone() });
    let error = Store::<TypeConfig>::open(file.join("below")).expect_err("below a file");
    assert!(matches!(error, StoreError::NotADirectory { .. }), "{error:?}");
    assert_eq!(std::fs::read(&file).expect("the file"), b"text");
}

/// Not even the superuser may make a directory there.
#[cfg(target_os = "linux")]
#[test]
fn a_place_without_permission_is_named() {
    let error = Store::<TypeConfig>::open("/sys/session").expect_err("no permission");
    assert_eq!(error, StoreError::Permission { path: "/sys".into() });
    assert!(error.to_string().contains("/sys may not be read or written"));
    // Nor a file in a directory that is there.
    let error = Store::<TypeConfig>::open("/sys/kernel").expect_err("no permission");
    assert!(matches!(error, StoreError::Permission { .. }), "{error:?}");
}

#[test]
fn a_name_that_is_empty_is_refused_in_words() {
    let error = Store::<TypeConfig>::open("").expect_err("no directory");
    assert!(error.to_string().contains("name a directory"), "{error}");
}

/// More than is kept in memory: the oldest entries are read from the disk.
#[test]
fn old_entries_are_read_from_the_disk() {
    let disk = TestDisk::new();
    let mut store = open(&disk).expect("a store");
    block_on(async {
        for index in 0..72 {
            store.log.blocking_append([entry(index, 1 << 20)]).await.expect("an append");
        }
        let check = |entries: Vec<Entry<TypeConfig>>, range: std::ops::Range<u64>| {
            let indices: Vec<_> = entries.iter().map(|entry| entry.log_id.index).collect();
            assert_eq!(indices, range.clone().collect::<Vec<_>>());
            for (found, index) in entries.into_iter().zip(range) {
                assert_eq!(found.payload, entry(index, 1 << 20).payload);
            }
        };
        let log = &mut store.log;
        check(log.try_get_log_entries(0..3).await.expect("entries"), 0..3);
        check(log.try_get_log_entries(5..=70).await.expect("entries"), 5..71);
        // Cut back to before what is in memory, and on from there.
        log.truncate(id(3)).await.expect("a truncation");
        assert_eq!(log.get_log_state().await.expect("a state").last_log_id, Some(id(2)));
        log.blocking_append([entry(3, 1 << 20)]).await.expect("an append");
        check(log.try_get_log_entries(..).await.expect("entries"), 0..4);
        store.snapshots.save(1, &snapshot(0).with_engine(1, Bytes::new())).expect("a snapshot");
        log.purge(id(1)).await.expect("a purge");
        check(log.try_get_log_entries(..).await.expect("entries"), 2..4);
    });
    drop(store);
    let mut store = open(&disk).expect("a store");
    assert_eq!(block_on(store.log.try_get_log_entries(..)).expect("entries").len(), 2);
}
