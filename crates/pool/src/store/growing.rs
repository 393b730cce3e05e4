//! Drives that become longer while the pool serves.
//!
//! A file or device has become longer; the pool takes what is there now. A drive grows in steps, each of them durable before the
//! next one: grant pages for its new slabs, labels with the new length, the table of members with the new number of slabs. Then
//! the slabs may be granted, and so used.
//!
//! Invariants:
//! 1. Of a drive that is there its label tells how many slabs it has, and the table of members never tells of more: an opening
//!    that finds a longer label takes it, and writes the table anew. If the table tells of more, the drive is an old copy, and is
//!    refused.
//! 2. The grant pages are there for as many slabs as any copy of the label tells of.
//! 3. No slab is granted that the table of members in force does not tell of. So an opening without the drive knows how many
//!    slabs a root may reckon with.
//! 4. Whatever step an attempt ended at, growing can be tried again, to the same length or a greater one.

use super::Store;
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::MAX_TABLE_SLABS,
    meta::least_table_slabs,
};
use quoin_base::{DriveIndex, SliceId};
use quoin_drive::{Drive, Label, Member, MemberState};
use quoin_world::atomic::Ordering;
use std::{collections::BTreeMap, sync::Arc};

/// How long a drive is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveLen {
    /// The drive.
    pub drive: DriveIndex,
    /// Its bytes.
    pub len_bytes: u64,
}

/// How long a drive is, and what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveExtent {
    /// Its bytes.
    pub len_bytes: u64,
    /// Whole slabs in them, those of the journal included.
    pub slabs: u32,
    /// Grant pages that tell of these slabs, each of which it has twice.
    pub grant_pages: u32,
}

/// What growing a drive comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveGrowth {
    /// The drive.
    pub drive: DriveIndex,
    /// As it is.
    pub before: DriveExtent,
    /// As it will be.
    pub after: DriveExtent,
    /// The most grant pages that there is room for at its head.
    pub most_grant_pages: u32,
}

impl Store {
    /// What growing drives would come to, all of them together. Whether their files or devices are so long is not looked at.
    ///
    /// # Errors
    /// [`PoolError::Refused`] with the reason, if one cannot grow so.
    pub(crate) fn growth_of(&self, wanted: &[DriveLen]) -> Result<Vec<DriveGrowth>, PoolError> {
        let mut all = Vec::new();
        for wanted in wanted {
            let growth = self.growth_of_one(*wanted).map_err(|why| {
                let name = self.drive_name(wanted.drive);
                PoolError::Refused(format!("drive {name} cannot grow: {why}"))
            })?;
            all.push(growth);
        }
        // What the table of segments can name.
        let slab_bytes = u64::from(self.slab_bytes());
        let held: u64 = self.data_slabs().into_iter().map(|(_, slabs)| slabs).sum();
        let new: u64 = all.iter().map(|one| u64::from(one.after.slabs - one.before.slabs)).sum();
        if least_table_slabs(held + new, slab_bytes) > MAX_TABLE_SLABS as u64 {
            return Err(PoolError::Refused(format!(
                "the drives cannot grow: the pool would have {} slabs of {slab_bytes} bytes for data, more than it can keep count \
                 of; grow by less, or make a pool with larger slabs",
                held + new
            )));
        }
        Ok(all)
    }

    /// Why the pool could not keep count of the slabs of these drives, all of them together, if so.
    pub(crate) fn too_much_growth(&self, all: &[DriveGrowth]) -> Option<PoolError> {
        let (domains, mut new) = (self.domains(), BTreeMap::new());
        for DriveGrowth { drive, before, after, .. } in all {
            if let Some(domain) = domains.get(drive) {
                *new.entry(*domain).or_default() += u64::from(after.slabs - before.slabs);
            }
        }
        let why = self.cannot_count(new)?;
        Some(PoolError::Refused(format!(
            "the drives cannot grow: {why}; grow by less, or grow other drives too"
        )))
    }

    fn growth_of_one(&self, wanted: DriveLen) -> Result<DriveGrowth, String> {
        let DriveLen { drive: index, len_bytes } = wanted;
        let members = self.members();
        let Some(member) = members.get(index) else { return Err("the pool does not have it".into()) };
        if let Some(why) = why_not(member) {
            return Err(why);
        }
        let Ok(drive) = self.columns.drive(index) else { return Err("it is not open".into()) };
        let (label, then) = (drive.label(), drive.label_of(len_bytes));
        let slab_bytes = u64::from(self.slab_bytes());
        if len_bytes < label.len_bytes {
            return Err(format!(
                "it would have {len_bytes} bytes and has {}, and no drive becomes smaller; give it its old size back",
                label.len_bytes
            ));
        }
        if then.slabs() <= member.slabs {
            let lacking = label.slabs_start_bytes + u64::from(member.slabs + 1) * slab_bytes - len_bytes;
            return Err(format!(
                "there is nothing to grow by: {len_bytes} bytes hold the {} slabs of {slab_bytes} bytes that it has, and one more \
                 takes {lacking} bytes more; make its file or device larger first, or name other drives",
                member.slabs
            ));
        }
        if then.slabs() > label.most_slabs() {
            let most_bytes = label.slabs_start_bytes + u64::from(label.most_slabs()) * slab_bytes;
            return Err(format!(
                "it would have {} slabs, and the {} grant pages that there is room for at its head tell of {} at the most, which \
                 are {most_bytes} bytes; grow it to these, or add drives (quoin drive add)",
                then.slabs(),
                label.most_grant_pages(),
                label.most_slabs()
            ));
        }
        // The table may lag behind the label: what may be granted counts.
        let before = DriveExtent { slabs: member.slabs, ..extent(&label) };
        let most_grant_pages = label.most_grant_pages();
        Ok(DriveGrowth { drive: index, before, after: extent(&then), most_grant_pages })
    }

    /// Has drives grow, one after the other, to lengths that their files or devices have by now. On return the new slabs of those
    /// that grew may be granted, and they have them whatever happens. The first one that does not grow ends it.
    ///
    /// If it fails while the pool stays online, that drive may be longer, which the next attempt or opening settles.
    pub(crate) async fn grow_drives(&self, wanted: &[DriveLen]) -> (Vec<DriveGrowth>, Result<(), PoolError>) {
        // NOTE: of all of them at once. Each may bring the room that copies of the table take of another.
        if let Ok(all) = self.growth_of(wanted)
            && let Some(refused) = self.too_much_growth(&all)
        {
            return (Vec::new(), Err(refused));
        }
        let (mut grown, mut outcome) = (Vec::new(), Ok(()));
        for wanted in wanted {
            match self.grow_drive(*wanted).await {
                Ok(growth) => grown.push(growth),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        // The only slice of a pool takes all, so that it writes to all drives side by side.
        // NOTE: when all have grown. A larger segment table has copies in several domains, and would take them from small drives.
        if self.label.slices == 1 && self.grants.nobodys() > 0 {
            self.claims.want(SliceId(0), self.grants.nobodys());
        }
        self.lay_out_tenants();
        self.claims.came_free();
        (grown, outcome)
    }

    async fn grow_drive(&self, wanted: DriveLen) -> Result<DriveGrowth, PoolError> {
        let _turn = self.adding.lock().await;
        self.health().check()?;
        let growth = self.growth_of(&[wanted])?.remove(0);
        let DriveLen { drive: index, len_bytes } = wanted;
        let drive = self.columns.drive(index)?.clone();
        let found = drive.measure();
        if found < len_bytes {
            let name = drive.name();
            return Err(PoolError::Refused(format!(
                "drive {name} cannot grow to {len_bytes} bytes: its file or device has {found}; make it larger first"
            )));
        }
        match self.lengthen(&drive, growth.after).await {
            Ok(()) => Ok(growth),
            Err(error @ PoolError::Drive(_)) => {
                let why = error.to_string();
                self.do_without(index, error).await?;
                Err(PoolError::Refused(format!(
                    "drive {} did not grow, and the pool goes on without it: {why}",
                    drive.name()
                )))
            }
            Err(error) => Err(error),
        }
    }

    async fn lengthen(&self, drive: &Arc<Drive>, to: DriveExtent) -> Result<(), PoolError> {
        let (index, pool) = (drive.index(), self.pool_name());
        drive.blank_end().await?;
        // NOTE: the pages first. An opening reads those of all slabs that the label tells of.
        if planted(Bug::GrowBeforeGrants) {
            drive.lengthen(to.len_bytes).await?;
        }
        let growing = self.grants.begin_to_grow(drive, to.slabs).await?;
        drive.lengthen(to.len_bytes).await?;
        self.change_members(|members| {
            members.grow(index, to.slabs);
            Ok(())
        })
        .await?;
        self.grants.grow(growing);
        tracing::info!(pool = %pool, drive = drive.name(), bytes = to.len_bytes, slabs = to.slabs, "a drive grew");
        self.may_lack_room.fetch_or(drive.may_lack_room(), Ordering::AcqRel);
        Ok(())
    }
}

fn extent(label: &Label) -> DriveExtent {
    DriveExtent { len_bytes: label.len_bytes, slabs: label.slabs(), grant_pages: label.grant_pages() }
}

/// Why a drive does not grow, whatever its size, if so.
fn why_not(member: &Member) -> Option<String> {
    let why = match member.state {
        MemberState::Active if !member.roles.data => {
            "it holds the journal only, which does not grow; name drives that hold data"
        }
        MemberState::Active => return None,
        MemberState::Leaving => "it leaves the pool; have it stay first (quoin drive evacuate --cancel)",
        MemberState::Absent => "it is absent; bring it back first, or name the other drives",
        MemberState::Failed => "it failed; replace it (quoin drive replace), or name the other drives",
        MemberState::Gone => "it left the pool",
    };
    Some(why.into())
}
