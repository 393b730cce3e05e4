//! The drives of the configuration, and how each is.

use crate::Bay;
use quoin_drive::{Answers, Drive, DriveWatch};
use quoin_world::World;
use std::sync::Arc;

/// The drives of the configuration, and how each was when it was last opened.
pub(crate) struct Drives(pub(crate) Vec<DriveSlot>);

pub(crate) struct DriveSlot {
    pub(crate) path: String,
    /// Where it was found, if that is not its path.
    pub(crate) found_at: Option<String>,
    /// What its path leads to.
    pub(crate) device: Option<String>,
    /// The drive, held only while its pool is open, because holding it holds its lock.
    pub(crate) drive: Option<Arc<Drive>>,
    /// Why it could not be opened, or how it failed.
    pub(crate) fault: Option<String>,
    /// The pool goes on without it.
    pub(crate) is_left_out: bool,
    /// The file system under it is full.
    pub(crate) no_room: bool,
    /// Sees to it that its operations end in time, over all openings.
    pub(crate) watch: Arc<DriveWatch>,
}

impl DriveSlot {
    /// What the pool calls the drive: the path by which it was opened.
    pub(crate) fn name(&self) -> &str {
        let elsewhere = self.found_at.as_ref().unwrap_or(&self.path);
        self.drive.as_ref().map_or(elsewhere, |drive| drive.name())
    }
}

impl Drives {
    /// The drives of a bay. `told` is called with a drive's position when the drive begins or ceases to answer in time.
    pub(crate) fn new(
        bay: &dyn Bay,
        world: &Arc<dyn World>,
        told: impl Fn(usize, Answers) + Clone + Send + Sync + 'static,
    ) -> Self {
        let slot = |(number, path): (usize, String)| {
            let told = told.clone();
            let watch = DriveWatch::new(world.clone(), bay.patience(), move |answers| told(number, answers));
            let (found_at, device, drive, fault) = (None, None, None, None);
            DriveSlot { path, found_at, device, drive, fault, is_left_out: false, no_room: false, watch }
        };
        Self(bay.paths().into_iter().enumerate().map(slot).collect())
    }

    /// True when no other owner holds any of the drives.
    pub(crate) fn all_let_go(&self) -> bool {
        self.0.iter().filter_map(|slot| slot.drive.as_ref()).all(|drive| Arc::strong_count(drive) == 1)
    }

    /// Lets go of all drives, remembering which had failed.
    pub(crate) fn release(&mut self, reason: &str) {
        for slot in &mut self.0 {
            if slot.drive.take().is_some_and(|drive| drive.is_failed()) {
                slot.fault = Some(reason.to_owned());
            }
        }
    }

    /// A description of the drives that do not answer in time; `None` if all do.
    pub(crate) fn stalled(&self) -> Option<String> {
        stalled(self.0.iter())
    }

    /// The same without those that the pool goes on without.
    pub(crate) fn stalled_members(&self) -> Option<String> {
        stalled(self.0.iter().filter(|slot| !slot.is_left_out))
    }
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

pub(crate) fn not_finished(path: &str) -> String {
    format!(
        "drive {path} does not answer and has operations outstanding; the array uses it again once they have completed"
    )
}
