//! A drive that is added while the pool serves.
//!
//! It holds data: the journal stays on the drives that it is on. Until the table of members with it is in force, nothing of the
//! pool is on it, and an opening leaves it out. From then on no opening does without it.

use super::{Store, grants::OfDrive};
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
};
use quoin_base::{DriveId, DriveIndex, SliceId};
use quoin_drive::{Drive, Fences, Label, MAX_MEMBERS, Member, MemberState, Roles, slabs_start};
use quoin_world::{Disk, atomic::Ordering};
use std::sync::Arc;

impl Store {
    /// Adds a drive. On return it is a member, durably, and its slabs are ungranted. What is on the disk is overwritten;
    /// nothing has changed for the pool if that fails.
    pub(crate) async fn add_drive(
        &self,
        disk: Arc<dyn Disk>,
        id: DriveId,
        created_ms: u64,
    ) -> Result<DriveIndex, PoolError> {
        let _turn = self.adding.lock().await;
        self.health().check()?;
        let name = disk.name().to_owned();
        let refuse = |why: String| PoolError::Refused(format!("drive {name} cannot be added: {why}"));
        if self.drives().any(|drive| drive.name() == name) {
            return Err(refuse("the pool has it already".into()));
        }
        let index = self.members().next_index;
        if usize::from(index) >= MAX_MEMBERS {
            return Err(refuse(format!("a pool has at most {MAX_MEMBERS} drives in its life")));
        }
        let index = DriveIndex(index);

        // Who it is, and that its slabs are ungranted. An opening does not count it in yet.
        let roles = Roles { journal: false, data: true };
        let label = Label {
            drive: id,
            index,
            roles,
            len_bytes: disk.len_bytes(),
            journal_slabs: 0,
            fences: Fences { epoch: self.epoch(), of: Vec::new() },
            generation: 1,
            created_ms,
            slabs_start_bytes: slabs_start(disk.len_bytes(), self.slab_bytes()),
            ..self.label.clone()
        };
        let drive = Drive::format(disk, label).await?;
        let grants = match planted(Bug::MemberBeforeGrants) {
            true => None,
            false => Some(self.grants.format_added(&drive).await?),
        };

        // In force when the voters have it durably. Only then others may use it.
        let (slabs, domain) = (drive.slabs(), String::new());
        let (state, in_journal, votes) = (MemberState::Active, false, false);
        let member = Member { index, drive: id, roles, state, in_journal, votes, slabs, domain };
        self.change_members(|members| {
            assert_eq!(members.next_index, index.0, "one drive is added at a time");
            members.next_index += 1;
            members.all.push(member);
            Ok(())
        })
        .await?;
        self.may_lack_room.fetch_or(drive.may_lack_room(), Ordering::AcqRel);
        self.columns.add(drive.clone());
        let grants = match grants {
            Some(grants) => grants,
            None => self.grants.format_added(&drive).await?,
        };
        self.take_in(grants);
        Ok(index)
    }

    /// Slabs of a new drive may be granted from now on. The only slice of a pool takes all of them, so that it writes to all
    /// drives side by side; several take them when they need them.
    fn take_in(&self, of: OfDrive) {
        let slabs = self.grants.add(of);
        if self.label.slices == 1 {
            self.claims.want(SliceId(0), slabs);
        }
        self.claims.came_free();
    }
}
