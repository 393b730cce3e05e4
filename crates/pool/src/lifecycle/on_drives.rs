//! What a slice has on drives, as the store asks for it.

use crate::{
    lifecycle::slice::Slice,
    meta::Domain,
    store::{Loss, Tenant},
};
use quoin_base::{DriveIndex, MembersGeneration};
use std::{collections::BTreeMap, sync::Weak};

/// A slice that may have been closed.
pub(super) struct OnDrives(pub(super) Weak<Slice>);

impl Tenant for OnDrives {
    fn loss_of(&self, drive: DriveIndex, is_lost: &dyn Fn(DriveIndex) -> bool) -> Loss {
        // Of one that was closed nobody knows.
        self.0.upgrade().map_or(Loss::ForGood, |slice| slice.segments.table.loss_of(drive, is_lost))
    }

    fn holds_last(&self, drive: DriveIndex) -> bool {
        self.0.upgrade().is_none_or(|slice| slice.segments.table.last_copies_on(drive).segments > 0)
    }

    fn lose(&self, drive: DriveIndex, is_absent: bool, members: MembersGeneration) {
        if let Some(slice) = self.0.upgrade() {
            if let Err(why) = slice.segments.table.lose(drive, is_absent, members) {
                slice.store.health().fail(why);
            }
            slice.lay_out();
        }
    }

    fn give_up(&self, drive: DriveIndex) {
        if let Some(slice) = self.0.upgrade() {
            slice.segments.table.give_up(drive);
            slice.requests.nudge();
        }
    }

    fn take_back(&self, drive: DriveIndex, members: MembersGeneration) {
        if let Some(slice) = self.0.upgrade() {
            let granted = slice.store.granted_to(slice.id()).into_iter().find(|(of, _)| *of == drive);
            slice.segments.table.take_back(
                drive,
                granted.map(|(_, slabs)| slabs).unwrap_or_default(),
                members,
            );
            slice.lay_out();
            slice.requests.nudge();
        }
    }

    fn lay_out(&self) {
        if let Some(slice) = self.0.upgrade() {
            slice.lay_out();
            slice.requests.nudge();
        }
    }

    fn cannot_count(&self, new: &BTreeMap<Domain, u64>) -> Option<String> {
        self.0.upgrade().and_then(|slice| slice.cannot_count(new))
    }

    fn join_journal(&self, drive: DriveIndex) {
        if let Some(slice) = self.0.upgrade() {
            slice.log.journal.join(slice.id(), drive);
        }
    }

    fn refers_to(&self, drive: DriveIndex) -> bool {
        // Of one that was closed nobody knows.
        self.0
            .upgrade()
            .is_none_or(|slice| slice.segments.table.refers_to(drive) || slice.log.journal.lies_on(drive))
    }

    fn forget(&self, drive: DriveIndex) {
        if let Some(slice) = self.0.upgrade() {
            slice.segments.table.forget(drive);
            slice.lay_out();
        }
    }
}
