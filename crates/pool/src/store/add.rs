//! A drive that is added while the pool serves.
//!
//! It takes data, the journal, or both. Until the table of members with it is in force, nothing of the pool is on it, and an
//! opening leaves it out. From then on no opening does without it.
//!
//! Invariants:
//! 1. The slabs of its journal are zeroes, durably, before its label is there: nothing older is taken for a part of the journal.
//! 2. A lane begins an extent on it only when the table with it is in force: an opening that reads the journal knows of it.

use super::{Store, domain_problem, grants::OfDrive};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::MAX_TABLE_SLABS,
    meta::{Domain, least_table_slabs},
    space::Overhead,
};
use quoin_base::{DriveId, DriveIndex, MembersGeneration, SliceId};
use quoin_drive::{Drive, Label, MAX_MEMBERS, Member, MemberState, Roles, slabs_start};
use quoin_world::{Disk, atomic::Ordering};
use std::{collections::BTreeMap, sync::Arc};

impl Store {
    /// Adds a drive. On return it is a member, durably, and its slabs are ungranted. What is on the disk is overwritten.
    ///
    /// If it fails while the pool stays online, nothing has changed for the pool. If it takes the pool offline, or is dropped,
    /// the table of members may have the drive, and then the pool is not opened without it.
    pub(crate) async fn add_drive(
        &self,
        disk: Arc<dyn Disk>,
        domain: String,
        roles: Roles,
        (id, created_ms): (DriveId, u64),
    ) -> Result<DriveIndex, PoolError> {
        let _turn = self.adding.lock().await;
        self.health().check()?;
        let name = disk.name().to_owned();
        let refuse = |why: String| PoolError::Refused(format!("drive {name} cannot be added: {why}"));
        if self.needed_drives().any(|drive| drive.name() == name) {
            return Err(refuse("the pool has it already".into()));
        }
        let index = self.members().next_index;
        if usize::from(index) >= MAX_MEMBERS {
            return Err(refuse(format!("a pool has at most {MAX_MEMBERS} drives in its life")));
        }
        let index = DriveIndex(index);
        if let Some(why) = domain_problem(&domain) {
            return Err(refuse(why));
        }
        let journal_slabs = if roles.journal { self.journal_slabs_of_added() } else { 0 };
        if let Some(why) = self.slabs_problem(disk.len_bytes(), roles, journal_slabs) {
            return Err(refuse(why));
        }
        if let Some(why) =
            self.counting_problem(disk.len_bytes(), &domain, journal_slabs).filter(|_| roles.data)
        {
            return Err(refuse(format!("{why}; take a smaller drive, or add drives in other domains first")));
        }

        // Who it is, and that its slabs are ungranted. It is fenced like the others, and an opening does not count it in yet.
        let Some(other) = self.needed_drives().next() else { unreachable!("a pool needs drives") };
        let (fences, session) = (other.fences(), other.writer_session());
        let label =
            Label { drive: id, index, roles, journal_slabs, fences, created_ms, ..self.label.clone() };
        let drive = Drive::format(disk, label, session).await?;
        if planted(Bug::MemberBeforeGrants) {
            self.make_member(&drive, &domain).await?;
        }
        if planted(Bug::JoinBeforeMember) {
            self.columns.add(drive.clone());
            self.join_journal(index);
        }
        let grants = self.grants.format_added(&drive).await?;

        // NOTE: a member only when its grant pages are there: an opening reads those of every member.
        if !planted(Bug::MemberBeforeGrants) {
            self.make_member(&drive, &domain).await?;
        }
        // NOTE: what lanes write there counts, and an opening reads the journal of members only.
        if roles.journal && !planted(Bug::JoinBeforeMember) {
            self.join_journal(index);
        }
        self.take_in(grants);
        tracing::info!(pool = %self.pool_name(), drive = name, number = %index, "a drive was added");
        Ok(index)
    }

    /// Puts it into the table of members. In force when the voters have it durably. Only then others may use the drive.
    async fn make_member(&self, drive: &Arc<Drive>, domain: &str) -> Result<(), PoolError> {
        let Label { drive: id, index, roles, .. } = drive.label();
        let (slabs, domain) = (drive.slabs(), domain.to_owned());
        let (state, in_journal, votes) = (MemberState::Active, roles.journal, false);
        let failed_at = MembersGeneration(0);
        let member = Member {
            index,
            drive: id,
            roles,
            state,
            in_journal,
            votes,
            slabs,
            domain,
            failed_at,
            absent_since_ms: 0,
        };
        self.change_members(|members| {
            assert_eq!(members.next_index, index.0, "one drive is added at a time");
            members.next_index += 1;
            members.all.push(member);
            Ok(())
        })
        .await
        .map_err(|error| in_doubt(drive.name(), error))?;
        self.may_lack_room.fetch_or(drive.may_lack_room(), Ordering::AcqRel);
        if self.columns.drive(index).is_err() {
            self.columns.add(drive.clone());
        }
        Ok(())
    }

    /// Lanes may begin extents on a drive from now on.
    fn join_journal(&self, drive: DriveIndex) {
        self.tenants.lock().iter().for_each(|tenant| tenant.join_journal(drive));
    }

    /// How many slabs of a drive that is added are for the journal: as many as the drive has that has the most.
    fn journal_slabs_of_added(&self) -> u32 {
        self.needed_drives().map(|drive| drive.label().journal_slabs).max().unwrap_or(0)
    }

    /// Why a drive of this size has too few slabs to be added, or too many, if so.
    fn slabs_problem(&self, len_bytes: u64, roles: Roles, journal_slabs: u32) -> Option<String> {
        let slab_bytes = u64::from(self.slab_bytes());
        let all = len_bytes.saturating_sub(slabs_start(len_bytes, self.slab_bytes())) / slab_bytes;
        let journal = u64::from(journal_slabs);
        if all < journal {
            return Some(format!(
                "with {len_bytes} bytes it has room for {all} slabs of {slab_bytes} bytes, and its part of the journal takes \
                 {journal}, as on the other drives; take a larger drive"
            ));
        }
        if !roles.data {
            return None;
        }
        let new = all - journal;
        let least = Overhead::of(&self.layouts()).least_added_slabs();
        if new < least {
            return Some(format!(
                "with {len_bytes} bytes it has room for {new} slabs of {slab_bytes} bytes for data, and fewer than \
                 {least} bring the pool nothing; take a larger drive"
            ));
        }
        let labels = self.needed_drives().map(|drive| drive.label());
        let data_slabs = |label: Label| u64::from(label.slabs() - label.journal_slabs);
        let held: u64 = labels.filter(|label| label.roles.data).map(data_slabs).sum();
        (least_table_slabs(held + new, slab_bytes) > MAX_TABLE_SLABS as u64).then(|| {
            format!(
                "with its {new} slabs of {slab_bytes} bytes the pool would have {} for data, more than it can keep count \
                 of; take a smaller drive, or make a pool with larger slabs",
                held + new
            )
        })
    }

    /// Why the pool could not keep count of the slabs of a drive of this size in this domain, if so.
    fn counting_problem(&self, len_bytes: u64, domain: &str, journal_slabs: u32) -> Option<String> {
        let all = len_bytes.saturating_sub(slabs_start(len_bytes, self.slab_bytes()))
            / u64::from(self.slab_bytes());
        let members = self.members();
        let of_domain = members.all.iter().find(|member| !domain.is_empty() && member.domain == domain);
        let number = of_domain.map_or(members.next_index, |member| member.index.0);
        self.cannot_count([(Domain(number), all.saturating_sub(journal_slabs.into()))].into())
    }

    /// Why the slices could not keep count of so many slabs more in each domain, if so.
    pub(super) fn cannot_count(&self, mut new: BTreeMap<Domain, u64>) -> Option<String> {
        // Each takes a part of them.
        new.values_mut().for_each(|slabs| *slabs = slabs.div_ceil(self.slice_count()));
        self.tenants.lock().iter().find_map(|tenant| tenant.cannot_count(&new))
    }

    /// Slabs of a new drive may be granted from now on. The only slice of a pool takes all of them, so that it writes to all
    /// drives side by side; several take them when they need them, or to use all drives alike.
    fn take_in(&self, of: OfDrive) {
        let slabs = self.grants.add(of);
        self.tenants.lock().iter().for_each(|tenant| tenant.lay_out());
        if self.label.slices == 1 {
            self.claims.want(SliceId(0), slabs);
        }
        self.claims.came_free();
    }
}

/// Why adding a drive failed. Where the table of members was being written, it may have the drive.
fn in_doubt(drive: &str, error: PoolError) -> PoolError {
    match error {
        before @ (PoolError::Refused(_) | PoolError::Offline { .. }) => before,
        error => PoolError::Offline {
            reason: format!(
                "{error}; the next opening decides whether drive {drive} was added: keep it attached, and open the pool with it"
            ),
        },
    }
}
