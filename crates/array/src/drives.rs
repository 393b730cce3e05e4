//! The keeper of the drives of the configuration: how each is, and where it was found.
//!
//! Invariants:
//! 1. A drive is held only while its pool is open or being opened, because holding it holds its lock.
//! 2. A drive whose operations have not ended is not opened again.
//! 3. Each slot has one watch, over all openings of its drive.

use crate::{Bay, DriveChangeError, DriveEmulateError};
use parking_lot::Mutex;
use quoin_api::DriveLocation;
use quoin_base::DriveIndex;
use quoin_drive::{Answers, Drive, DriveError, DriveSet, DriveWatch};
use quoin_emulate::EmulatedDrive;
use quoin_world::{Disk, World};
use std::{collections::BTreeSet, mem, path::Path, sync::Arc};

/// Makes the slot of the drive at a path, which gets a position.
type MakeSlot = Box<dyn Fn(&dyn Bay, usize, String) -> DriveSlot + Send + Sync>;

/// The drives of the configuration, in its order.
pub(crate) struct Drives {
    bay: Box<dyn Bay>,
    slots: Mutex<Vec<DriveSlot>>,
    /// Makes the slot of a drive at a position.
    make_slot: MakeSlot,
    /// Drives that the pool went on without, as far as it was reported; `None`: the pool was not open yet.
    given_up: Mutex<Option<BTreeSet<DriveIndex>>>,
    /// Those that are left have no slab for what hosts wrote, as far as it was reported.
    lack_slabs: Mutex<bool>,
}

/// A drive, and how it was when it was last opened.
pub(crate) struct DriveSlot {
    path: String,
    found_at: Option<String>,
    device: Option<String>,
    location: Option<DriveLocation>,
    /// What the pool calls it, as far as its label was read.
    number: Option<DriveIndex>,
    drive: Option<Arc<Drive>>,
    fault: Option<String>,
    is_left_out: bool,
    /// It left the pool and the configuration. Its position is not another's: watches know their positions.
    is_removed: bool,
    no_room: bool,
    watch: Arc<DriveWatch>,
    emulated: Option<Arc<EmulatedDrive>>,
}

/// An emulated drive of the configuration.
pub(crate) struct Emulated {
    pub(crate) path: String,
    pub(crate) drive: Arc<EmulatedDrive>,
    /// Where its data area begins; `None` while it is not open.
    pub(crate) data_from: Option<u64>,
}

/// A drive of a slot that could be opened, and the path it was opened by.
pub(crate) struct Opened {
    pub(crate) slot: usize,
    pub(crate) path: String,
    pub(crate) disk: Arc<dyn Disk>,
}

/// A drive that began or ceased to answer in time.
pub(crate) struct Answering {
    pub(crate) path: String,
    /// What the pool calls it.
    pub(crate) name: String,
    /// It had a fault before.
    pub(crate) had_fault: bool,
}

/// Drives that the pool goes on without and that were not reported yet.
pub(crate) struct GivenUp {
    /// The pool was open before.
    pub(crate) was_open: bool,
    /// Each with its path, if it is one of the configuration.
    pub(crate) drives: Vec<(DriveIndex, Option<String>)>,
}

impl DriveSlot {
    /// Its path in the configuration.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Where it was found, if that is not its path.
    pub(crate) fn found_at(&self) -> Option<&str> {
        self.found_at.as_deref()
    }

    /// What its path leads to.
    pub(crate) fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Whether the pool does not have it, or goes on without it.
    pub(crate) fn is_left_out(&self) -> bool {
        self.is_left_out
    }

    /// Where it is, as the system tells.
    pub(crate) fn location(&self) -> Option<&DriveLocation> {
        self.location.as_ref()
    }

    /// Its number in the pool, as its label says.
    pub(crate) fn number(&self) -> Option<DriveIndex> {
        self.number
    }

    /// Whether it was opened and is none that the pool has.
    pub(crate) fn is_stranger(&self) -> bool {
        self.drive.is_none() && self.number.is_some()
    }

    /// The drive, while its pool is open.
    pub(crate) fn drive(&self) -> Option<&Arc<Drive>> {
        self.drive.as_ref()
    }

    /// Why it could not be opened, or how it failed.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Whether the file system under it is full.
    pub(crate) fn no_room(&self) -> bool {
        self.no_room
    }

    /// Sees to it that its operations end in time.
    pub(crate) fn watch(&self) -> &DriveWatch {
        &self.watch
    }

    /// What is emulated on it.
    pub(crate) fn emulated(&self) -> Option<&Arc<EmulatedDrive>> {
        self.emulated.as_ref()
    }

    /// What the pool calls the drive: the path by which it was opened.
    fn name(&self) -> &str {
        let elsewhere = self.found_at.as_ref().unwrap_or(&self.path);
        self.drive.as_ref().map_or(elsewhere, |drive| drive.name())
    }
}

impl Drives {
    /// The drives of a bay. `told` is called with a drive's position when the drive begins or ceases to answer in time.
    pub(crate) fn new(
        bay: Box<dyn Bay>,
        world: &Arc<dyn World>,
        told: impl Fn(usize, Answers) + Clone + Send + Sync + 'static,
    ) -> Self {
        let world = world.clone();
        let make_slot: MakeSlot = Box::new(move |bay, number, path| {
            let told = told.clone();
            let watch = DriveWatch::new(world.clone(), bay.patience(), move |answers| told(number, answers));
            let emulated = bay.emulated(&path);
            DriveSlot {
                path,
                found_at: None,
                device: None,
                location: None,
                number: None,
                drive: None,
                fault: None,
                is_left_out: false,
                is_removed: false,
                no_room: false,
                watch,
                emulated,
            }
        });
        let slots = bay.paths().into_iter().enumerate().map(|(number, path)| make_slot(&*bay, number, path));
        let slots = Mutex::new(slots.collect());
        Self { bay, slots, make_slot, given_up: Mutex::default(), lack_slabs: Mutex::default() }
    }

    /// Adds the slot of a drive that is to be added. Returns its position.
    pub(crate) fn add_slot(&self, path: &str) -> usize {
        let mut slots = self.slots.lock();
        let number = slots.len();
        slots.push((self.make_slot)(&*self.bay, number, path.to_owned()));
        number
    }

    /// Removes the slot of a drive that could not be added. Only the last can go: watches know their positions.
    pub(crate) fn remove_slot(&self, slot: usize) {
        let mut slots = self.slots.lock();
        if slot + 1 == slots.len() {
            slots.pop();
        }
    }

    /// Holds a drive that was added.
    pub(crate) fn take_in(&self, slot: usize, number: DriveIndex, drive: Option<Arc<Drive>>) {
        let mut slots = self.slots.lock();
        let slot = &mut slots[slot];
        (slot.number, slot.drive, slot.fault) = (Some(number), drive, None);
        (slot.device, slot.location) = (self.bay.device(&slot.path), self.bay.location(&slot.path));
    }

    /// The path of the drive whose path is `given` or, if only one is so, ends in it.
    pub(crate) fn path_of(&self, given: &str) -> Result<String, DriveChangeError> {
        let slots = self.slots.lock();
        if present(&slots).any(|slot| slot.path == given) {
            return Ok(given.to_owned());
        }
        let ends = present(&slots).filter(|slot| Path::new(&slot.path).ends_with(given));
        let paths: Vec<_> = ends.map(|slot| slot.path.clone()).collect();
        match &paths[..] {
            [path] => Ok(path.clone()),
            [] => Err(DriveChangeError::NotFound { drive: given.to_owned() }),
            _ => Err(DriveChangeError::Ambiguous { drive: given.to_owned(), paths }),
        }
    }

    /// The number of the drive with this path, if it is known.
    pub(crate) fn number_of(&self, path: &str) -> Option<DriveIndex> {
        present(&self.slots.lock()).find(|slot| slot.path == path)?.number
    }

    /// The position of the drive with this path.
    pub(crate) fn position_of(&self, path: &str) -> Option<usize> {
        self.slots.lock().iter().position(|slot| !slot.is_removed && slot.path == path)
    }

    /// The positions and paths where the drive of this number may be: its own, or those of which nothing is known because they
    /// could not be opened. Its opening is let go.
    pub(crate) fn let_go(&self, drive: DriveIndex) -> Vec<(usize, String)> {
        let mut slots = self.slots.lock();
        let own = slots.iter().position(|slot| !slot.is_removed && slot.number == Some(drive));
        if let Some(at) = own {
            let slot = &mut slots[at];
            // Nothing waits for it.
            slot.is_left_out = true;
            if slot.drive.take().is_some() {
                slot.watch.let_go();
            }
            return vec![(at, slot.path.clone())];
        }
        let unknown = slots.iter().enumerate().filter(|(_, slot)| !slot.is_removed && slot.number.is_none());
        unknown.map(|(at, slot)| (at, slot.path.clone())).collect()
    }

    /// Holds a drive that came back, by the path where it was found.
    pub(crate) fn come_back(&self, at: usize, path: &str, drive: Option<Arc<Drive>>) {
        let mut slots = self.slots.lock();
        let slot = &mut slots[at];
        slot.found_at = (path != slot.path).then(|| path.to_owned());
        slot.number = drive.as_ref().map(|drive| drive.index());
        (slot.drive, slot.fault, slot.is_left_out) = (drive, None, false);
        (slot.device, slot.location) = (self.bay.device(path), self.bay.location(path));
    }

    /// The paths of the drives that are open.
    pub(crate) fn open_paths(&self) -> Vec<String> {
        let slots = self.slots.lock();
        let open = present(&slots).filter(|slot| slot.drive.is_some());
        open.map(|slot| slot.found_at.as_ref().unwrap_or(&slot.path).clone()).collect()
    }

    /// Lets go of a drive that left the pool and the configuration.
    pub(crate) fn forget(&self, drive: DriveIndex) {
        for slot in self.slots.lock().iter_mut().filter(|slot| slot.number == Some(drive)) {
            (slot.is_removed, slot.is_left_out) = (true, true);
            (slot.drive, slot.number, slot.fault) = (None, None, None);
            // The pool keeps it in its list, and would keep it open, and so locked.
            slot.watch.let_go();
        }
    }

    /// Drives that failed because they did not answer in time, and that are open.
    pub(crate) fn silent(&self) -> Vec<DriveIndex> {
        let slots = self.slots.lock();
        let is_silent =
            |slot: &&DriveSlot| slot.drive.is_some() && matches!(slot.watch.answers(), Answers::Failed(_));
        slots.iter().filter(is_silent).filter_map(|slot| slot.number).collect()
    }

    /// Notes that a drive that the pool goes on without is reported.
    pub(crate) fn note_given_up(&self, drive: DriveIndex) {
        if let Some(given_up) = &mut *self.given_up.lock() {
            given_up.insert(drive);
        }
        let mut slots = self.slots.lock();
        slots.iter_mut().filter(|slot| slot.number == Some(drive)).for_each(|slot| slot.is_left_out = true);
    }

    /// Where they come from.
    pub(crate) fn bay(&self) -> &dyn Bay {
        &*self.bay
    }

    /// Their positions.
    pub(crate) fn positions(&self) -> Vec<usize> {
        let slots = self.slots.lock();
        (0..slots.len()).filter(|at| !slots[*at].is_removed).collect()
    }

    /// Something of each of them.
    pub(crate) fn each<T>(&self, of: impl Fn(&DriveSlot) -> T) -> Vec<T> {
        present(&self.slots.lock()).map(of).collect()
    }

    /// Something of all of them.
    pub(crate) fn all<T>(&self, of: impl FnOnce(&[&DriveSlot]) -> T) -> T {
        of(&present(&self.slots.lock()).collect::<Vec<_>>())
    }

    /// The emulated drive whose path is `given` or, if only one is so, ends in it.
    pub(crate) fn emulated(&self, given: &str) -> Result<Emulated, DriveEmulateError> {
        let slots = self.slots.lock();
        let ends = |slot: &&DriveSlot| Path::new(&slot.path).ends_with(given);
        let found: Vec<_> = match present(&slots).find(|slot| slot.path == given) {
            Some(slot) => vec![slot],
            None => present(&slots).filter(ends).collect(),
        };
        let drive = given.to_owned();
        match found.as_slice() {
            [] => Err(DriveEmulateError::NotFound { drive }),
            [DriveSlot { path, drive, emulated: Some(emulated), .. }] => {
                let data_from = drive.as_ref().map(|drive| drive.label().slabs_start_bytes);
                Ok(Emulated { path: path.clone(), drive: emulated.clone(), data_from })
            }
            [slot] => Err(DriveEmulateError::NotEmulated { drive: slot.path.clone() }),
            several => {
                let paths = several.iter().map(|slot| slot.path.clone()).collect();
                Err(DriveEmulateError::Ambiguous { drive, paths })
            }
        }
    }

    /// The watch through which a drive may be opened now, or why it may not.
    pub(crate) fn watch_to_open(&self, slot: usize) -> Result<Arc<DriveWatch>, String> {
        let slots = self.slots.lock();
        let slot = &slots[slot];
        if slot.watch.under_way() > 0 { Err(not_finished(&slot.path)) } else { Ok(slot.watch.clone()) }
    }

    /// Notes that a drive is not held, and why it could not be opened, if it could not.
    pub(crate) fn set_fault(&self, slot: usize, fault: Option<String>) {
        let mut slots = self.slots.lock();
        (slots[slot].drive, slots[slot].fault) = (None, fault);
    }

    /// Holds the drives of a set that was opened. Returns the paths of those that were found elsewhere and not there
    /// before, each with the path where it is.
    pub(crate) fn hold(&self, opened: &[Opened], set: &DriveSet) -> Vec<(String, String)> {
        let mut elsewhere = Vec::new();
        let mut slots = self.slots.lock();
        slots.iter_mut().for_each(|slot| slot.is_left_out = true);
        for Opened { slot, path, disk } in opened {
            let slot = &mut slots[*slot];
            let found_at = (*path != slot.path).then(|| path.clone());
            if found_at.is_some() && found_at != slot.found_at {
                elsewhere.push((slot.path.clone(), path.clone()));
            }
            slot.found_at = found_at;
            (slot.device, slot.location) = (self.bay.device(path), self.bay.location(path));
            let left_out = set.left_out.iter().find(|(name, _)| name == disk.name());
            slot.fault = left_out.map(|(_, why)| why.to_string());
            let of_label = |(_, why): &(String, DriveError)| match why {
                DriveError::NotMember { index, .. } => Some(*index),
                _ => None,
            };
            slot.number = left_out.and_then(of_label);
            slot.drive = set.drives.iter().find(|drive| drive.name() == disk.name()).cloned();
            slot.number = slot.drive.as_ref().map(|drive| drive.index()).or(slot.number);
            slot.is_left_out = slot.drive.is_none();
        }
        elsewhere
    }

    /// Notes that a drive began or ceased to answer in time.
    pub(crate) fn note_answers(&self, slot: usize, answers: Answers) -> Answering {
        let mut slots = self.slots.lock();
        let slot = &mut slots[slot];
        let had_fault = slot.fault.is_some();
        if let Answers::Failed(waited) = answers {
            slot.fault = Some(format!("it has not answered for {} s", waited.as_secs()));
        }
        Answering { path: slot.path.clone(), name: slot.name().to_owned(), had_fault }
    }

    /// Notes which drives the pool goes on without.
    pub(crate) fn give_up(&self, failed: BTreeSet<DriveIndex>) -> GivenUp {
        let before = self.given_up.lock().replace(failed.clone());
        let was_open = before.is_some();
        let mut slots = self.slots.lock();
        let index_of = |slot: &DriveSlot| slot.drive.as_ref().map(|drive| drive.index());
        for slot in &mut *slots {
            slot.is_left_out |= index_of(slot).is_some_and(|index| failed.contains(&index));
        }
        let path_of = |index: DriveIndex| {
            let slot = slots.iter().find(|slot| index_of(slot) == Some(index));
            slot.map(|slot| slot.path.clone())
        };
        let unreported =
            failed.difference(before.as_ref().unwrap_or(&BTreeSet::new())).copied().collect::<Vec<_>>();
        GivenUp { was_open, drives: unreported.into_iter().map(|index| (index, path_of(index))).collect() }
    }

    /// Notes under which drives the file systems are full. Returns the paths of those for which that changed, each with
    /// whether it is full.
    pub(crate) fn note_room(&self, without_room: &[String]) -> Vec<(String, bool)> {
        let mut changed = Vec::new();
        for slot in &mut *self.slots.lock() {
            let name = slot.drive.as_ref().map(|drive| drive.name());
            let no_room = name.is_some_and(|name| without_room.iter().any(|drive| drive == name));
            if mem::replace(&mut slot.no_room, no_room) != no_room {
                changed.push((slot.path.clone(), no_room));
            }
        }
        changed
    }

    /// Notes whether they lack slabs. True if that changed.
    pub(crate) fn note_slabs(&self, lack: bool) -> bool {
        mem::replace(&mut *self.lack_slabs.lock(), lack) != lack
    }

    /// From now on drives are not waited for that do not answer.
    pub(crate) fn hurry(&self) {
        self.slots.lock().iter().for_each(|slot| slot.watch.hurry());
    }

    /// True when no other owner holds any of the drives.
    pub(crate) fn all_let_go(&self) -> bool {
        let slots = self.slots.lock();
        slots.iter().filter_map(|slot| slot.drive.as_ref()).all(|drive| Arc::strong_count(drive) == 1)
    }

    /// Lets go of all drives, remembering which had failed.
    pub(crate) fn release(&self, reason: &str) {
        for slot in &mut *self.slots.lock() {
            if slot.drive.take().is_some_and(|drive| drive.is_failed()) {
                slot.fault = Some(reason.to_owned());
            }
        }
    }

    /// A description of the drives that do not answer in time; `None` if all do.
    pub(crate) fn stalled(&self) -> Option<String> {
        stalled(present(&self.slots.lock()))
    }

    /// The same without those that the pool goes on without.
    pub(crate) fn stalled_members(&self) -> Option<String> {
        stalled(self.slots.lock().iter().filter(|slot| !slot.is_left_out))
    }
}

/// Those of the configuration.
fn present(slots: &[DriveSlot]) -> impl Iterator<Item = &DriveSlot> {
    slots.iter().filter(|slot| !slot.is_removed)
}

fn stalled<'a>(slots: impl Iterator<Item = &'a DriveSlot>) -> Option<String> {
    let told = slots.filter_map(|slot| match slot.watch.answers() {
        Answers::InTime => None,
        Answers::Suspect(waited) => {
            Some(format!("drive {} has not answered for {} s", slot.path, waited.as_secs()))
        }
        Answers::Failed(_) => Some(not_finished(&slot.path)),
    });
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn not_finished(path: &str) -> String {
    format!(
        "drive {path} does not answer and has operations outstanding; the array uses it again once they have completed"
    )
}
