//! Spare capacity: what hosts leave free, so that what lost drives held can be made again on the others.
//!
//! A pool keeps a number of fault domains spare. Then hosts are admitted, and promised, no more than fits on the drives that
//! are left when so many domains are lost, the largest ones; see [`Layouts::net_for_hosts`]. Rebuild, evacuation, the cleaner
//! and checkpoints use whatever is free.
//!
//! 1. A loss takes nothing from hosts: a domain that lost a drive is one of those kept spare, until the drive is removed.
//! 2. More is kept spare only if what is live, buffered and promised fits beside it. Nothing is admitted on the strength of
//!    what is to be kept while that is found out.
//! 3. A removal that would make hosts lack what they have has fewer domains kept spare first.

use crate::{
    error::PoolError,
    lifecycle::{pool::Pool, slice::Slice},
    meta::{Layouts, NetUse},
    space::Overhead,
};
use quoin_base::{DriveIndex, Layout};
use quoin_world::Compiled;

/// What a pool keeps free for the loss of drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spare {
    /// Fault domains that are kept spare.
    pub domains: u8,
    /// Of them, those that are in use: drives in them failed, are absent or leave.
    pub used: u8,
    /// Bytes of host data that are kept free for the others.
    pub bytes: u64,
}

impl Pool {
    /// What it keeps free for the loss of drives.
    pub fn spare(&self) -> Spare {
        let store = self.store();
        let domains = store.spare_domains();
        if domains == 0 {
            return Spare::default();
        }
        let hit = store.layouts().hit_count();
        Spare { domains, used: domains.min(hit as u8), bytes: self.spare_bytes(domains) }
    }

    /// Keeps so many fault domains spare from now on. Not kept when the pool is closed.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if there are too few domains, or less is free than it takes, with how much: nothing changed then.
    /// [`PoolError::Offline`] if the pool is or goes offline.
    pub fn set_spare(&self, domains: u8) -> Compiled<'_, Result<(), PoolError>> {
        Box::pin(async move {
            let store = self.store();
            let _turn = store.turn_of_drives().await;
            store.health().check()?;
            let before = store.spare_domains();
            if domains > before {
                if let Some(why) = self.why_no_spare(domains) {
                    return Err(PoolError::Refused(why));
                }
                store.unless_held_up(self.make_room_for_spare(domains)).await?;
                if self.is_short_sparing(domains) {
                    return Err(self.lacks_for_spare(domains));
                }
            }
            self.keep_spare(domains);
            // Writers that did not see it yet have charged what they write.
            self.slices().iter().for_each(|slice| slice.pass_shards());
            if domains > before && self.is_short_sparing(domains) {
                self.keep_spare(before);
                return Err(self.lacks_for_spare(domains));
            }
            Ok(())
        })
    }

    /// Keeps so many fault domains spare that an earlier opening kept spare: what was admitted then fits.
    pub fn restore_spare(&self, domains: u8) {
        if self.why_no_spare(domains).is_none() {
            self.keep_spare(domains);
        }
    }

    fn keep_spare(&self, domains: u8) {
        self.store().set_spare_domains(domains);
        self.store().lay_out_tenants();
    }

    /// Why so many domains cannot be kept spare, whatever is free.
    fn why_no_spare(&self, domains: u8) -> Option<String> {
        self.why_no_spare_in(&self.store().layouts_sparing(0, None, None), domains)
    }

    fn why_no_spare_in(&self, layouts: &Layouts, domains: u8) -> Option<String> {
        // Those that are lost already are among those kept spare.
        let lost = layouts.lost_count().min(domains.into());
        spare_problem(self.store().layout(), layouts.domain_count() + lost, domains)
    }

    /// Lets what is buffered be destaged and what was dropped be merged, and gets slabs, if there is no room otherwise.
    async fn make_room_for_spare(&self, domains: u8) -> Result<(), PoolError> {
        if !self.is_short_sparing(domains) {
            return Ok(());
        }
        for slice in self.slices() {
            if slice.counters.held.dropped_blocks.get() > 0 {
                slice.merge_dropped().await?;
            }
            slice.drain().await?;
        }
        let layouts = self.store().layouts_sparing(domains, None, None);
        let then = Overhead::of(&layouts);
        for (slice, short) in self.slices().iter().zip(self.short_of(&layouts)) {
            if short > 0 {
                slice.grow(slice.space.overhead().net(then.raw_for_hosts(short))).await;
            }
        }
        Ok(())
    }

    fn is_short_sparing(&self, domains: u8) -> bool {
        let layouts = self.store().layouts_sparing(domains, None, None);
        self.short_of(&layouts).into_iter().any(|short| short > 0)
    }

    /// How many net slabs each slice lacks if it was laid out so.
    fn short_of(&self, layouts: &Layouts) -> Vec<u64> {
        self.short_with_charged(layouts, |slice| slice.buffer.charged_blocks())
    }

    fn short_with_charged(&self, layouts: &Layouts, charged: impl Fn(&Slice) -> u64) -> Vec<u64> {
        let overhead = Overhead::of(layouts);
        let short = self.slices().iter().map(|slice| {
            let NetUse { held, live, .. } = slice.segments.table.usage_as(layouts);
            slice.space.short_with(held, live, overhead, charged(slice))
        });
        short.collect()
    }

    fn lacks_for_spare(&self, domains: u8) -> PoolError {
        let more = self.spare_bytes(domains).saturating_sub(self.spare_bytes(self.store().spare_domains()));
        let stats = self.stats();
        let free = stats.free_bytes.saturating_sub(stats.buffered_bytes);
        let which = if domains == 1 {
            "the largest fault domain holds".to_owned()
        } else {
            format!("the {domains} largest fault domains hold")
        };
        PoolError::Refused(format!(
            "to make again what {which} takes {more} bytes of space for host data, and {free} bytes are free: delete volumes or \
             snapshots, or add drives"
        ))
    }

    /// Bytes of host data that hosts leave free if so many domains are kept spare.
    fn spare_bytes(&self, domains: u8) -> u64 {
        let usable = |domains| self.usable_bytes_with(&self.store().layouts_sparing(domains, None, None));
        usable(0).saturating_sub(usable(domains))
    }

    fn usable_bytes_with(&self, layouts: &Layouts) -> u64 {
        let overhead = Overhead::of(layouts);
        let mut ungranted = overhead.net(self.store().nobodys_slabs());
        let usable = self.slices().iter().map(|slice| {
            let NetUse { held, live, .. } = slice.segments.table.usage_as(layouts);
            slice.space.limit_with(held, live, overhead, std::mem::take(&mut ungranted))
        });
        usable.sum()
    }

    /// Keeps no more domains spare than what hosts have leaves room for once a drive is removed that is lost or left.
    pub(crate) fn relax_spare_without(&self, drive: DriveIndex) {
        let (store, kept) = (self.store(), self.store().spare_domains());
        let without = |domains: u8| store.layouts_sparing(domains, None, Some(drive));
        let (now, then) = (self.usable_bytes_with(&store.layouts()), self.usable_bytes_with(&without(kept)));
        // A pool that is full for hosts may lack a little: that is no reason. What is buffered is charged more than it takes, and
        // may replace what is live.
        let is_room = |layouts: &Layouts| {
            then >= now || self.short_with_charged(layouts, |_| 0).into_iter().all(|short| short == 0)
        };
        let fits = |domains: &u8| {
            let layouts = without(*domains);
            self.why_no_spare_in(&layouts, *domains).is_none() && is_room(&layouts)
        };
        let fewer = (0..=kept).rev().find(fits).unwrap_or(0);
        if fewer < kept {
            tracing::warn!(
                kept,
                fewer,
                "without a drive that is removed there is no room for as many spare domains"
            );
            self.keep_spare(fewer);
        }
    }

    /// What hosts may fill of so many ungranted net slabs, in bytes.
    pub(crate) fn bytes_for_hosts(&self, slabs: u64) -> u64 {
        let space = &self.slices()[0].space;
        space.bytes_of(space.overhead().for_hosts(slabs))
    }
}

/// Why so many domains of those `there` cannot be kept spare with a layout, whatever is free.
pub(super) fn spare_problem(layout: Layout, there: usize, domains: u8) -> Option<String> {
    let (asked, least) = (usize::from(domains), usize::from(layout.parity()) + 1);
    if asked > 0 && layout.parity() == 0 {
        return Some(format!(
            "layout {layout} protects nothing: what a lost drive held cannot be made again, so no space is kept for it"
        ));
    }
    (asked > 0 && there < least + asked).then(|| {
        format!(
            "layout {layout} takes {least} fault domains at least, so {domains} more must be there to be kept spare, and drives \
             for data are in {there}: add a drive in another fault domain"
        )
    })
}
