//! How a pool is protected: what it would survive now, what each drive holds, and taking a drive out by hand.

use crate::{error::PoolError, lifecycle::pool::Pool, meta::Losses};
use quoin_base::{DriveIndex, Layout};
use quoin_drive::{Member, MemberState};
use quoin_world::Compiled;

/// How a pool is protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection {
    /// What data is laid out as if there are fault domains enough.
    pub layout: Layout,
    /// What new data is laid out as, with the fault domains that are left.
    pub layout_now: Layout,
    /// Fault domains of the drives that take data.
    pub domains: usize,
    /// Fault domains that may fail now, one after the other, without loss.
    pub tolerates: u8,
    /// Drives that each extent of the journal is written to.
    pub journal_columns: u8,
    /// Segments in use that lack a column.
    pub degraded_segments: u64,
    /// Live bytes in them.
    pub degraded_bytes: u64,
    /// Bytes of the columns that they lack, which a rebuild makes.
    pub lacking_bytes: u64,
    /// Bytes of those on drives that may come back, which no rebuild makes so far.
    pub absent_bytes: u64,
    /// Segments that lack more columns than they can do without, until drives are back.
    pub unreadable_segments: u64,
    /// Live bytes in them: at most so many cannot be read. Of layouts with parity, some can.
    pub unreadable_bytes: u64,
}

/// What a drive has of the pool's slabs for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveSpace {
    /// The drive.
    pub drive: DriveIndex,
    /// Bytes in slabs for data; 0 if the pool goes on without it.
    pub data_bytes: u64,
    /// Of them, those in segments.
    pub used_bytes: u64,
}

impl Pool {
    /// How it is protected.
    pub fn protection(&self) -> Protection {
        let layouts = self.store().layouts();
        let layout_now = layouts.of_data();
        let mut protection = Protection {
            layout: self.store().layout(),
            layout_now,
            domains: layouts.domain_count(),
            tolerates: layout_now.parity(),
            journal_columns: u8::MAX,
            degraded_segments: 0,
            degraded_bytes: 0,
            lacking_bytes: 0,
            absent_bytes: 0,
            unreadable_segments: 0,
            unreadable_bytes: 0,
        };
        for slice in self.slices() {
            protection.journal_columns = protection.journal_columns.min(slice.log.journal.columns());
            if self.store().has_lost_drives() {
                let displaced = slice.segments.table.displaced();
                protection.degraded_segments += displaced.degraded_segments;
                protection.degraded_bytes += displaced.degraded_bytes;
                protection.lacking_bytes += displaced.lacking_bytes;
                protection.absent_bytes += displaced.absent_bytes;
                protection.unreadable_segments += displaced.unreadable_segments;
                protection.unreadable_bytes += displaced.unreadable_bytes;
            }
            if layout_now.parity() > 0 {
                protection.tolerates = protection.tolerates.min(slice.segments.table.tolerates());
            }
        }
        protection.tolerates = protection.tolerates.min(protection.journal_columns.saturating_sub(1));
        protection
    }

    /// What each drive that the pool needs has of the slabs for data.
    pub fn drive_space(&self) -> Vec<DriveSpace> {
        let slab_bytes = u64::from(self.store().slab_bytes());
        let used = |drive| self.slices().iter().map(|slice| slice.segments.table.used_of(drive)).sum::<u64>();
        let of = |(drive, slabs): (DriveIndex, u64)| DriveSpace {
            drive,
            data_bytes: slabs * slab_bytes,
            used_bytes: used(drive) * slab_bytes,
        };
        self.store().data_slabs().into_iter().map(of).collect()
    }

    /// Takes a drive out for good, as if it had failed: from now on no opening needs it, nothing is written to it, and what
    /// its columns held is computed from the others. False if the pool goes on without it already.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if anything would be lost, with how much: nothing changed then. [`PoolError::Offline`] if
    /// the pool is or goes offline.
    pub fn fail_drive(&self, drive: DriveIndex) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(async move {
            if let Some(why) = self.lost_without(drive) {
                let name = self.store().drive_name(drive);
                return Err(PoolError::Refused(format!("the pool cannot go on without drive {name}: {why}")));
            }
            self.store().fail_drive(drive).await
        })
    }

    /// What would be lost without a drive, in words; `None` if nothing.
    pub(super) fn lost_without(&self, drive: DriveIndex) -> Option<String> {
        let members = self.store().members();
        let is_lost = |other| members.get(other).is_none_or(|member: &Member| !member.is_needed());
        let member = members.get(drive).filter(|member| member.roles.data)?;
        let mut all = Losses::default();
        for slice in self.slices() {
            let table = &slice.segments.table;
            let losses = match member.state {
                MemberState::Active | MemberState::Leaving => table.lost_without(drive, &is_lost),
                // Blocks that cannot be computed now wait for it.
                MemberState::Absent => table.last_copies_on(drive),
                MemberState::Failed | MemberState::Gone => Losses::default(),
            };
            let Losses { segments, bytes, table } = losses;
            (all.segments, all.bytes, all.table) =
                (all.segments + segments, all.bytes + bytes, all.table | table);
        }
        match all {
            Losses { segments: 0, table: false, .. } => None,
            Losses { segments: 0, .. } => {
                Some("its copy of the table of segments is the only one".to_owned())
            }
            Losses { segments, bytes, .. } => {
                let plural = if segments == 1 { "" } else { "s" };
                Some(format!(
                    "{segments} segment{plural} with {bytes} bytes of data and metadata would be lost"
                ))
            }
        }
    }
}
