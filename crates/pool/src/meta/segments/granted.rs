//! The slabs that a slice is granted, as an opening finds out what takes which of them.
//!
//! Each is taken once at most: by a table slab or by a segment. What is left is free.

use crate::{error::PoolError, store::Store};
use quoin_base::{DriveIndex, SliceId};
use quoin_stripe::Column;
use std::collections::{BTreeMap, BTreeSet};

/// Slabs by drive.
pub(super) type SlabsByDrive = BTreeMap<DriveIndex, BTreeSet<u32>>;

/// The slabs that a slice is granted, while an opening finds out what takes which of them.
pub(super) struct Granted {
    all: SlabsByDrive,
    /// Drives that the pool went on without: what they hold is not known.
    lost: BTreeSet<DriveIndex>,
    /// Those that nothing took so far.
    pub(super) free: SlabsByDrive,
}

impl Granted {
    pub(super) fn to(store: &Store, slice: SliceId) -> Self {
        let all: SlabsByDrive = store.granted_to(slice).into_iter().collect();
        Self { free: all.clone(), all, lost: store.lost_drives().map(|(drive, _)| drive).collect() }
    }

    /// How many slabs the slice holds of each drive.
    pub(super) fn counts(&self) -> BTreeMap<DriveIndex, u64> {
        self.all.iter().map(|(drive, slabs)| (*drive, slabs.len() as u64)).collect()
    }

    /// Takes slabs for what the metadata says lies there.
    ///
    /// # Errors
    /// The slice was not granted one of them, or something else has it: grants and segment table do not agree.
    pub(super) fn take(&mut self, what: String, columns: &[Column]) -> Result<(), PoolError> {
        for Column { drive, slab } in columns.iter().filter(|column| !self.lost.contains(&column.drive)) {
            let is_granted = self.all.get(drive).is_some_and(|slabs| slabs.contains(slab));
            let problem = match () {
                () if !is_granted => "is not granted to the slice",
                () if !self.free.get_mut(drive).is_some_and(|free| free.remove(slab)) => "is taken twice",
                () => continue,
            };
            return Err(PoolError::corrupt(what, format!("slab {slab} of drive {drive} {problem}")));
        }
        Ok(())
    }
}
