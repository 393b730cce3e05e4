//! Errors that a pool may answer with, because of what happens to its drives.

use crate::client::Shared;
use quoin_drive::MemberState;
use quoin_pool::{Pool, PoolError, PoolState};
use std::sync::atomic::Ordering;

impl Shared {
    /// An error that is nobody's fault in this boot; else what it violates.
    pub(crate) fn excuse(&self, pool: &Pool, doing: &str, error: &PoolError) -> Result<(), String> {
        let is_absent = || pool.members().all.iter().any(|member| member.state == MemberState::Absent);
        let is_beyond = || self.dies && is_absent() && pool.protection().unreadable_segments > 0;
        let excused = match error {
            // Drives were lost, and the others have no room: what is acknowledged stays in the journal.
            PoolError::NoSpace => has_lost_drives(pool),
            PoolError::Offline { reason } if reason.contains("the pool is full") => has_lost_drives(pool),
            PoolError::Offline { .. } => self.may_fail || self.damaged,
            // Only while they are away, and nothing is lost by it.
            PoolError::Medium { unread, .. } if self.beyond.is_some() => {
                (*unread || doing == "copy") && self.is_beyond()
            }
            // Drives died one after the other, before all was made again.
            PoolError::Medium { unread: true, .. } if is_beyond() => true,
            PoolError::Medium { .. } | PoolError::Corrupt { .. } => {
                // A copy reads, too.
                self.damaged || (self.may_fail && self.beyond.is_none() && matches!(doing, "read" | "copy"))
            }
            PoolError::Drive(_) | PoolError::Stripe(_) => self.may_fail || self.damaged,
            _ => false,
        };
        if matches!(pool.state(), PoolState::Offline { .. }) {
            self.stop.store(true, Ordering::Relaxed);
        }
        if excused { Ok(()) } else { Err(format!("{doing} failed: {error}")) }
    }

    /// Whether the drives that are left have no room for what is there and promised.
    pub(crate) fn lacks_promised(&self, pool: &Pool) -> bool {
        let (stats, protection) = (pool.stats(), pool.protection());
        let is_overdrawn = stats.usable_bytes < stats.live_bytes + stats.reserved_unmapped_bytes
            || protection.layout_now != protection.layout;
        pool.is_short_of_slabs() || has_lost_drives(pool) && is_overdrawn
    }
}

fn has_lost_drives(pool: &Pool) -> bool {
    pool.members().all.iter().any(|member| member.state != MemberState::Active)
}
