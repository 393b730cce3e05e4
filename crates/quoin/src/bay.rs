//! Drives by path, and by label where paths do not lead to them; and the notes beside them.

use crate::{data::DataDir, domains::usual_domain, drive_file, location::location, notes::FileNotes};
use quoin_array::{Bay, DriveLocation, Finding, Lengthening, Measuring, Notes, Opening};
use quoin_base::{DriveIndex, PoolId};
use quoin_drive::{LABEL_BYTES, LABEL_OFFSETS, Label, Patience};
use quoin_emulate::EmulatedDrive;
use quoin_world::{Disk, OneShot, OneShotSender, one_shot};
use quoin_world_linux::{OpenError, OpenOptions, open_disk};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// How long to wait for drives that are in use, and how often to look.
const LET_GO_WITHIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Where the system keeps links to devices that do not change with their names.
const LINKS_OF_DEVICES: [&str; 2] = ["/dev/disk/by-id", "/dev/disk/by-path"];
/// The most entries of a directory that are examined.
const MOST_ENTRIES: usize = 4096;

/// The drives of the configuration, opened through the operating system.
pub(crate) struct PathBay {
    paths: Mutex<Vec<PathBuf>>,
    patience: Patience,
    /// Those that are emulated, by their paths.
    emulated: Arc<BTreeMap<PathBuf, Arc<EmulatedDrive>>>,
    /// Paths that threads are at.
    busy: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// The drives, and the file in which events wait while their pool is offline.
pub(crate) struct ServingBay {
    pub(crate) drives: PathBay,
    pub(crate) notes: Arc<FileNotes>,
    /// Where the configuration is, which a drive is added to.
    pub(crate) data: DataDir,
}

impl Bay for ServingBay {
    fn paths(&self) -> Vec<String> {
        Bay::paths(&self.drives)
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String> {
        self.drives.open(path)
    }

    fn open_unless_in_use(&self, path: &str) -> Result<Option<Arc<dyn Disk>>, String> {
        self.drives.open_unless_in_use(path)
    }

    fn notes(&self) -> Option<Arc<dyn Notes>> {
        Some(self.notes.clone())
    }

    fn begin_open(&self, path: &str) -> Opening {
        self.drives.begin_open(path)
    }

    fn begin_search(&self, pool: PoolId, taken: &[String]) -> Finding {
        self.drives.begin_search(pool, taken)
    }

    fn begin_measure(&self, path: &str) -> Measuring {
        self.drives.begin_measure(path)
    }

    fn begin_lengthen(&self, path: &str, len_bytes: u64) -> Lengthening {
        self.drives.begin_lengthen(path, len_bytes)
    }

    fn device(&self, path: &str) -> Option<String> {
        self.drives.device(path)
    }

    fn location(&self, path: &str) -> Option<DriveLocation> {
        location(path.as_ref())
    }

    fn domain(&self, path: &str) -> Option<String> {
        usual_domain(path.as_ref())
    }

    fn add(&self, path: &str) -> Result<(), String> {
        self.data.add_drive(path)?;
        self.drives.paths().push(path.into());
        Ok(())
    }

    fn remove(&self, path: &str) {
        self.drives.paths().retain(|one| one != Path::new(path));
        if let Err(why) = self.data.remove_drive(path) {
            tracing::warn!(why, "a drive that was not added is still in quoin.toml");
        }
    }

    fn forget(&self, path: &str) -> Result<(), String> {
        // NOTE: the file first. What is in RAM is read from it when the array starts again.
        self.data.forget_drive(path)?;
        self.drives.paths().retain(|one| one != Path::new(path));
        Ok(())
    }

    fn emulated(&self, path: &str) -> Option<Arc<EmulatedDrive>> {
        self.drives.emulated(path)
    }

    fn patience(&self) -> Patience {
        self.drives.patience()
    }
}

impl PathBay {
    pub(crate) fn new(paths: Vec<PathBuf>, patience: Patience) -> Self {
        Self { paths: Mutex::new(paths), patience, emulated: Arc::default(), busy: Arc::default() }
    }

    /// The same with some of them emulated. `emulated` has them by their paths.
    pub(crate) fn with_emulated(self, emulated: BTreeMap<PathBuf, Arc<EmulatedDrive>>) -> Self {
        Self { emulated: Arc::new(emulated), ..self }
    }

    fn paths(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens all drives that can be opened, those of `pool` by their labels where paths do not lead to them. A process that
    /// was killed lets go of its drives a moment after it has ended.
    pub(crate) fn open_all(&self, pool: PoolId) -> Result<OpenedDisks, String> {
        let (paths, fail_after) = (self.paths().clone(), self.patience.fail_after);
        let (sender, outcome) = mpsc::channel();
        // On a thread of its own: opening a drive that hangs cannot be interrupted.
        thread::spawn(move || sender.send(Ok(open_all(&paths, pool))));
        outcome.recv_timeout(fail_after + LET_GO_WITHIN).unwrap_or_else(|_| {
            Err(format!(
                "a drive does not answer: opening has not come to an end in {} s",
                fail_after.as_secs()
            ))
        })
    }

    /// Has a thread find something out about `path`; `refused` if one is at it still.
    fn ask<T: Send + 'static>(
        &self,
        path: &str,
        refused: String,
        ask: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> OneShot<Result<T, String>> {
        let (sender, answer) = one_shot();
        let sender = Arc::new(Mutex::new(Some(sender)));
        let send = |sender: &Mutex<Option<OneShotSender<_>>>, outcome| {
            if let Some(sender) = sender.lock().unwrap_or_else(PoisonError::into_inner).take() {
                sender.send(outcome);
            }
        };
        let to = sender.clone();
        if !self.work(path.as_ref(), ask, move |outcome| send(&to, outcome)) {
            send(&sender, Err(refused));
        }
        answer
    }

    /// Has a thread work on `path` and then tell what came of it, unless one is at it still. False if so.
    fn work<T>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
    ) -> bool {
        let Some(busy) = Busy::at(&self.busy, path) else { return false };
        let started = thread::Builder::new().spawn(move || {
            let outcome = work();
            // NOTE: before anybody is told. Who is told may want something else of the path at once.
            drop(busy);
            tell(outcome);
        });
        if let Err(error) = &started {
            tracing::warn!(%error, "no thread to open {} with", path.display());
        }
        started.is_ok()
    }
}

/// Drives that could be opened, and why others could not.
#[derive(Default)]
pub(crate) struct OpenedDisks {
    pub(crate) disks: Vec<Arc<dyn Disk>>,
    /// The pool may go on without them: the tables on the drives tell.
    pub(crate) faults: Vec<String>,
}

/// A path that a thread is at, until the thread ends in whatever way.
struct Busy {
    all: Arc<Mutex<BTreeSet<PathBuf>>>,
    path: PathBuf,
}

impl Busy {
    /// `None` if another thread is at it.
    fn at(all: &Arc<Mutex<BTreeSet<PathBuf>>>, path: &Path) -> Option<Self> {
        let is_first = all.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        is_first.then(|| Self { all: all.clone(), path: path.to_owned() })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}

fn open_all(paths: &[PathBuf], pool: PoolId) -> OpenedDisks {
    let deadline = Instant::now() + LET_GO_WITHIN;
    let open_one = |path: &PathBuf| loop {
        match open(path) {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => thread::sleep(LOOK_AGAIN),
            opened => return opened.map_err(|error| error.to_string()),
        }
    };
    // First the paths that lead to drives of this pool.
    let is_right = |path: &&PathBuf| label_at(path).is_some_and(|label| label.pool == pool);
    let (taken, others): (Vec<_>, Vec<_>) = paths.iter().partition(is_right);
    let taken: Vec<PathBuf> = taken.into_iter().cloned().collect();
    let present: BTreeSet<_> =
        taken.iter().filter_map(|path| label_at(path)).map(|label| label.index).collect();
    // Then, for those that do not, the drives of the pool that are found elsewhere.
    let missing = paths.len() - present.len();
    let mut found = if missing > 0 { search(paths, pool, &taken) } else { Vec::new() };
    found.retain(|(index, _)| !present.contains(index));
    // What the other paths lead to matters only if a drive is found nowhere: it shows best what is wrong.
    let is_whole = found.len() >= missing && taken.len() == present.len();
    let others = others.into_iter().filter(|_| !is_whole);
    let mut opened = OpenedDisks::default();
    for path in taken.iter().chain(found.iter().map(|(_, path)| path)).chain(others) {
        match open_one(path) {
            Ok(disk) => opened.disks.push(disk),
            Err(fault) => opened.faults.push(fault),
        }
    }
    opened
}

fn still_at(path: &str) -> String {
    format!("{path} does not answer: what was asked of it before has not come to an end")
}

fn open(path: &Path) -> Result<Arc<dyn Disk>, OpenError> {
    open_disk(path, OpenOptions { create_len: None })
}

/// Opens the drive at `path` as what is emulated on it, if anything is. `None` if another process has it.
fn open_unless_in_use(
    path: &Path,
    emulated: Option<&Arc<EmulatedDrive>>,
) -> Result<Option<Arc<dyn Disk>>, String> {
    let disk = match open(path) {
        Err(OpenError::InUse { .. }) => return Ok(None),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let Some(drive) = emulated else { return Ok(Some(disk)) };
    drive.open(disk).map(Some).map_err(|error| {
        let shown = path.display();
        format!("drive {shown} cannot be opened: {error}; to end that: quoin drive emulate return {shown}")
    })
}

/// The newest intact label of the drive at a path.
fn label_at(path: &Path) -> Option<Label> {
    let kind = fs::metadata(path).ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    // NOTE: without waiting: a path may have become a FIFO, whose opening waits for a writer.
    let file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)
        .ok()?;
    // A drive has several copies of its label; a write that was cut off leaves an older one.
    let copies = LABEL_OFFSETS.into_iter().filter_map(|offset| {
        let mut bytes = [0; LABEL_BYTES];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Label::in_bytes(&bytes)
    });
    copies.max_by_key(|label| label.generation)
}

/// Drives of the pool in the directories of these paths, and where the system links to devices if any path is one's;
/// each position once. `taken` are left out.
fn search(paths: &[PathBuf], pool: PoolId, taken: &[PathBuf]) -> Vec<(DriveIndex, PathBuf)> {
    let real = |path: &PathBuf| fs::canonicalize(path).ok();
    let taken: BTreeSet<_> = taken.iter().filter_map(real).collect();
    let mut directories: Vec<PathBuf> = Vec::new();
    // Where to look: beside the drives that are known, and where the system links to devices.
    let parents = paths.iter().filter_map(|path| path.parent().map(Path::to_owned));
    let is_device = paths.iter().any(|path| path.starts_with("/dev"));
    let links = LINKS_OF_DEVICES.iter().map(PathBuf::from).filter(|_| is_device);
    for directory in parents.chain(links) {
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    // What is there, a bounded number in each directory.
    let mut entries: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let read = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
        let mut found: Vec<_> = read.take(MOST_ENTRIES).map(|entry| entry.path()).collect();
        found.sort();
        entries.extend(found);
    }
    // Several names may lead to one device: each is looked at once.
    let (mut seen, mut found) = (taken, Vec::<(DriveIndex, PathBuf)>::new());
    for path in entries {
        let Some(device) = real(&path) else { continue };
        if !seen.insert(device) {
            continue;
        }
        if let Some(label) = label_at(&path).filter(|label| label.pool == pool)
            && found.iter().all(|(index, _)| *index != label.index)
        {
            found.push((label.index, path));
        }
    }
    found
}

impl Bay for PathBay {
    fn paths(&self) -> Vec<String> {
        self.paths().iter().map(|path| path.display().to_string()).collect()
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, String> {
        let opened = self.open_unless_in_use(path)?;
        opened.ok_or_else(|| OpenError::InUse { path: path.into() }.to_string())
    }

    fn open_unless_in_use(&self, path: &str) -> Result<Option<Arc<dyn Disk>>, String> {
        open_unless_in_use(path.as_ref(), self.emulated.get(Path::new(path)))
    }

    fn begin_open(&self, path: &str) -> Opening {
        let (begun, emulated) = (PathBuf::from(path), self.emulated.get(Path::new(path)).cloned());
        let refused = format!("drive {path} does not answer: opening it has not come to an end");
        self.ask(path, refused, move || open_unless_in_use(&begun, emulated.as_ref()))
    }

    fn begin_measure(&self, path: &str) -> Measuring {
        let at = PathBuf::from(path);
        self.ask(path, still_at(path), move || drive_file::measure(&at).map_err(|error| error.to_string()))
    }

    fn begin_lengthen(&self, path: &str, len_bytes: u64) -> Lengthening {
        let at = PathBuf::from(path);
        let lengthen = move || drive_file::lengthen(&at, len_bytes).map_err(|error| error.to_string());
        self.ask(path, still_at(path), lengthen)
    }

    fn begin_search(&self, pool: PoolId, taken: &[String]) -> Finding {
        let (sender, finding) = one_shot();
        let (paths, mut taken) = (self.paths().clone(), taken.iter().map(PathBuf::from).collect::<Vec<_>>());
        // What is detached is not to be found by its label either.
        let detached = self.emulated.iter().filter(|(_, drive)| !drive.is_attached());
        taken.extend(detached.map(|(path, _)| path.clone()));
        // Under a name that is no drive's: one search at a time.
        let search = move || search(&paths, pool, &taken);
        self.work(Path::new(""), search, move |found| {
            sender.send(found.into_iter().map(|(index, path)| (index, path.display().to_string())).collect());
        });
        finding
    }

    fn device(&self, path: &str) -> Option<String> {
        let device = fs::canonicalize(path).ok()?.display().to_string();
        (device != path).then_some(device)
    }

    fn emulated(&self, path: &str) -> Option<Arc<EmulatedDrive>> {
        self.emulated.get(Path::new(path)).cloned()
    }

    fn patience(&self) -> Patience {
        self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_opened_is_opened_whatever_cannot() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        File::create(path("a")).and_then(|file| file.set_len(1 << 20)).unwrap();
        let opened = open_all(&[path("a"), path("b")], PoolId(uuid::Uuid::nil()));
        assert_eq!(opened.disks.len(), 1);
        assert!(opened.faults.len() == 1 && opened.faults[0].contains("/b"), "{:?}", opened.faults);
    }

    #[test]
    fn a_path_is_free_again_when_its_thread_has_ended_even_by_a_panic() {
        let bay = PathBay::new(Vec::new(), Patience::default());
        let (release, released) = mpsc::channel::<()>();
        assert!(bay.work(Path::new("a"), move || _ = released.recv(), drop));
        assert!(!bay.work(Path::new("a"), || (), drop), "one thread is at it");
        assert!(bay.work(Path::new("b"), || panic!("on purpose"), |()| ()));
        drop(release);
        for path in ["a", "b"] {
            while !bay.work(Path::new(path), || (), drop) {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn who_was_told_something_of_a_path_may_ask_for_more_at_once() {
        let bay = PathBay::new(Vec::new(), Patience::default());
        let path = Path::new("a");
        for turn in 0..2000 {
            let (sender, told) = mpsc::channel();
            assert!(bay.work(path, || (), move |()| sender.send(()).unwrap()), "in turn {turn}");
            told.recv().unwrap();
        }
    }
}
