//! A disk whose power can be cut between any two steps, and which then has only what was synced - or, as real
//! ones do, some of the rest.

use super::store::{Disk, SyncedFile};
use redb::StorageBackend;
use session_runtime::testing::Dice;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Cursor, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long a disk hangs, where it does: longer than it takes to answer everybody who is not made to wait for it.
const HANGS: Duration = Duration::from_millis(8);

/// What happens at one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The step and all after it fail.
    Cut,
    /// The disk hangs at the step, and then it and all after it fail.
    HangsAndCut,
    /// The step fails, those after it do not.
    Fails(io::ErrorKind),
}

/// What of the unsynced is still there after a cut.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Survives {
    Nothing,
    Everything,
    /// The first steps, the last of them torn.
    Beginning(u64),
    /// Any of the steps, any of them torn: disks do not write in order.
    Some(u64),
}

#[derive(Clone)]
pub(crate) struct TestDisk(Arc<Mutex<World>>);

#[derive(Default)]
struct World {
    files: Vec<Content>,
    names: Names,
    synced_names: Names,
    name_steps: Vec<NameStep>,
    steps: u64,
    fault: Option<(u64, Fault)>,
    capacity: Option<u64>,
    off: bool,
}

type Names = BTreeMap<String, usize>;

#[derive(Clone)]
enum NameStep {
    Put(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    steps: Vec<FileStep>,
}

#[derive(Clone)]
enum FileStep {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

fn at(position: u64) -> usize {
    usize::try_from(position).expect("a small file")
}

impl FileStep {
    /// Does it, or only its first bytes.
    fn on(&self, bytes: &mut Vec<u8>, torn: Option<&mut Dice>) {
        match self {
            Self::SetLen(len) => bytes.resize(at(*len), 0),
            Self::Write(offset, data) => {
                let kept = torn.map_or(data.len(), |dice| at(dice.below(data.len() as u64 + 1)));
                let end = at(*offset) + kept;
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[at(*offset)..end].copy_from_slice(&data[..kept]);
            }
        }
    }
}

impl NameStep {
    fn on(&self, names: &mut Names) {
        match self {
            Self::Put(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Remove(name) => drop(names.remove(name)),
        }
    }
}

impl Content {
    fn after_cut(&self, survives: Survives) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        match survives {
            Survives::Nothing => {}
            Survives::Everything => bytes.clone_from(&self.now),
            Survives::Beginning(seed) => {
                let dice = &mut Dice::new(seed);
                let kept = at(dice.below(self.steps.len() as u64 + 1));
                for (number, step) in self.steps[..kept].iter().enumerate() {
                    step.on(&mut bytes, (number + 1 == kept).then_some(&mut *dice));
                }
            }
            Survives::Some(seed) => {
                let dice = &mut Dice::new(seed);
                for step in &self.steps {
                    match dice.below(4) {
                        0 | 1 => {}
                        2 => step.on(&mut bytes, None),
                        _ => step.on(&mut bytes, Some(&mut *dice)),
                    }
                }
            }
        }
        bytes
    }
}

impl World {
    /// Counts a step that changes something, and lets it happen or not.
    fn step(&mut self) -> io::Result<()> {
        if self.off {
            return Err(io::Error::other("there is no power"));
        }
        let number = self.steps;
        self.steps += 1;
        match self.fault {
            Some((step, fault @ (Fault::Cut | Fault::HangsAndCut))) if step == number => {
                self.off = true;
                if fault == Fault::HangsAndCut {
                    std::thread::sleep(HANGS);
                }
                Err(io::Error::other("the power was cut"))
            }
            Some((step, Fault::Fails(kind))) if step == number => Err(kind.into()),
            _ => Ok(()),
        }
    }

    /// Changes a file, if it does not grow the disk beyond its size.
    fn change(&mut self, file: usize, step: FileStep) -> io::Result<()> {
        self.step()?;
        let used: usize = self.files.iter().map(|file| file.now.len()).sum();
        let content = &mut self.files[file];
        let end = match &step {
            FileStep::Write(offset, data) => at(*offset) + data.len(),
            FileStep::SetLen(len) => at(*len),
        };
        let grown = used + end.saturating_sub(content.now.len());
        if self.capacity.is_some_and(|capacity| grown as u64 > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        step.on(&mut content.now, None);
        content.steps.push(step);
        Ok(())
    }

    fn sync_file(&mut self, file: usize) -> io::Result<()> {
        self.step()?;
        let content = &mut self.files[file];
        for step in std::mem::take(&mut content.steps) {
            step.on(&mut content.synced, None);
        }
        Ok(())
    }

    fn rename(&mut self, step: NameStep) -> io::Result<()> {
        self.step()?;
        step.on(&mut self.names);
        self.name_steps.push(step);
        Ok(())
    }

    fn file(&self, name: &str) -> io::Result<usize> {
        if self.off {
            return Err(io::Error::other("there is no power"));
        }
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&mut self, name: &str) -> io::Result<usize> {
        let file = self.files.len();
        self.rename(NameStep::Put(name.to_owned(), file))?;
        self.files.push(Content::default());
        Ok(file)
    }
}

impl TestDisk {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// A disk with these files.
    pub(crate) fn of(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let names: Names = files.keys().cloned().zip(0..).collect();
        let files = files.values().map(|bytes| Content {
            now: bytes.clone(),
            synced: bytes.clone(),
            steps: Vec::new(),
        });
        let files = files.collect();
        Self(Arc::new(Mutex::new(World {
            files,
            names: names.clone(),
            synced_names: names,
            ..World::default()
        })))
    }

    /// The files on it.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let world = self.lock();
        world.names.iter().map(|(name, file)| (name.clone(), world.files[*file].now.clone())).collect()
    }

    /// Lets something happen at a step, counted from here.
    pub(crate) fn fault(&self, step: u64, fault: Fault) {
        let mut world = self.lock();
        world.steps = 0;
        world.fault = Some((step, fault));
    }

    /// Whether the fault has come.
    pub(crate) fn had_fault(&self) -> bool {
        let world = self.lock();
        world.fault.is_some_and(|(step, _)| world.steps > step)
    }

    /// The most bytes that all files may take.
    pub(crate) fn set_capacity(&self, capacity: Option<u64>) {
        self.lock().capacity = capacity;
    }

    /// The bytes that all files take.
    pub(crate) fn used(&self) -> u64 {
        self.lock().files.iter().map(|file| file.now.len() as u64).sum()
    }

    /// The disk that a machine finds when the power comes back.
    pub(crate) fn after_cut(&self, survives: Survives) -> Self {
        let world = self.lock();
        let kept = match survives {
            Survives::Nothing => 0,
            Survives::Everything => world.name_steps.len(),
            // A file system keeps its names in order.
            Survives::Beginning(seed) | Survives::Some(seed) => {
                at(Dice::new(seed ^ 1).below(world.name_steps.len() as u64 + 1))
            }
        };
        let mut names = world.synced_names.clone();
        for step in &world.name_steps[..kept] {
            step.on(&mut names);
        }
        let files = world.files.iter().enumerate().map(|(number, file)| {
            let survives = match survives {
                Survives::Beginning(seed) => Survives::Beginning(seed.wrapping_add(number as u64)),
                Survives::Some(seed) => Survives::Some(seed.wrapping_add(number as u64)),
                all => all,
            };
            let bytes = file.after_cut(survives);
            Content { now: bytes.clone(), synced: bytes, steps: Vec::new() }
        });
        let files = files.collect();
        Self(Arc::new(Mutex::new(World {
            files,
            names: names.clone(),
            synced_names: names,
            ..World::default()
        })))
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test panics with it")
    }
}

impl fmt::Debug for TestDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDisk").field("names", &self.lock().names).finish_non_exhaustive()
    }
}

impl Disk for TestDisk {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("disk").join(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn database(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        let mut world = self.lock();
        let file = match world.file(name) {
            Ok(file) => file,
            Err(_) => world.create(name)?,
        };
        Ok(Box::new(TestFile { disk: self.clone(), file, position: 0 }))
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let world = self.lock();
        let file = world.file(name)?;
        Ok(Box::new(Cursor::new(world.files[file].now.clone())))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn SyncedFile>> {
        let file = self.lock().create(name)?;
        Ok(Box::new(TestFile { disk: self.clone(), file, position: 0 }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.lock();
        world.file(from)?;
        world.rename(NameStep::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.lock();
        world.file(name)?;
        world.rename(NameStep::Remove(name.to_owned()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.lock();
        world.step()?;
        world.synced_names = world.names.clone();
        world.name_steps.clear();
        Ok(())
    }
}

#[derive(Debug)]
struct TestFile {
    disk: TestDisk,
    file: usize,
    position: u64,
}

impl StorageBackend for TestFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().files[self.file].now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let world = self.disk.lock();
        if world.off {
            return Err(io::Error::other("there is no power"));
        }
        let bytes = &world.files[self.file].now;
        let range = at(offset)..at(offset) + out.len();
        out.copy_from_slice(bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.lock().change(self.file, FileStep::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.lock().sync_file(self.file)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.lock().change(self.file, FileStep::Write(offset, data.to_vec()))
    }
}

impl Write for TestFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.disk.lock().change(self.file, FileStep::Write(self.position, data.to_vec()))?;
        self.position += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SyncedFile for TestFile {
    fn sync(&self) -> io::Result<()> {
        self.disk.lock().sync_file(self.file)
    }
}
