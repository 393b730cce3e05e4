//! Slabs that the slice is granted, and those that it gives back.

use crate::{
    commit::{
        committer::{Committer, OpenRows},
        decide::{Claims, Slabs},
        in_vain::InVain,
    },
    error::PoolError,
    format::Location,
    segment::segments::Segments,
    store::Standing,
};

pub(super) fn out_of_slabs() -> PoolError {
    PoolError::corrupt("the space accounting", "no slab is free for what was admitted")
}

impl Committer {
    /// Has `place` find a place for what was admitted. If drives were lost since, those that are left may have no slab for it: then
    /// it waits until there is one.
    pub(super) async fn place_patiently(
        &mut self,
        mut place: impl FnMut(&mut OpenRows, &Segments) -> Option<Location>,
    ) -> Result<Location, PoolError> {
        let slice = self.slice.clone();
        let mut waits = None;
        loop {
            if let Some(location) = place(&mut self.rows, &slice.segments) {
                return Ok(location);
            }
            if waits.is_none() {
                waits = Some(slice.store.wait_for_slabs().ok_or_else(out_of_slabs)?);
                // Those who wait are refused.
                self.committed();
            }
            if !slice.store.may_retry(slice.world()).await? {
                return Err(PoolError::NoSpace);
            }
            // What came free, and what drives brought.
            self.land()?;
            self.settle();
            slice.claim(slice.space.overhead().segment()).await?;
        }
    }

    /// Whether destage waits for slabs: drives were lost, and only checkpoints have some of what is free on the others, now and with
    /// the next one. Until then all else goes on.
    pub(super) fn awaits_slabs(&mut self) -> bool {
        let (usage, space) = (self.slice.segments.table.usage(), &self.slice.space);
        let charged = self.slice.buffer.charged_blocks();
        let wanted = space.checkpoint_slabs() + space.slabs_of_blocks(charged.min(space.step_blocks()));
        let is_vain = || self.cleaning.in_vain() != InVain::No;
        let lacks =
            usage.free_slabs + usage.awaiting_slabs < wanted && (space.is_overdrawn(charged) || is_vain());
        self.note_slabs(lacks);
        self.is_short()
    }

    pub(super) fn claims(&self, slabs: &Slabs) -> Claims {
        let (slice, store) = (&self.slice, &self.slice.store);
        let charged = slice.buffer.charged_blocks();
        // If cleaning gained nothing, only slabs that are free or coming can be given back.
        let at_most = match self.cleaning.in_vain() {
            InVain::Yes => (slabs.free + slabs.coming).saturating_sub(slabs.clean_below),
            InVain::No | InVain::ForNow | InVain::Retry => u64::MAX,
        };
        let net = |slabs| slice.space.overhead().net(slabs);
        let (slices, nobodys) = (store.slice_count(), store.nobodys_slabs());
        let standing = match slices {
            // There is no other slice to spare slabs for.
            1 => Standing { wanted: store.wanted_by(slice.id()), ..Standing::default() },
            _ => slice.tell_spare(charged, at_most),
        };
        Claims {
            slices,
            nobodys: net(nobodys),
            claimable: net(nobodys + standing.others_spare),
            wanted: net(standing.wanted),
            // Of interest only while there are slabs to claim.
            room: if nobodys > 0 { slice.space.room_slabs(charged) } else { 0 },
            owed: net(standing.owed),
            cleans_after_checkpoint: self.cleaning.in_vain() == InVain::ForNow,
        }
    }

    /// Takes so many ungranted net slabs, or as many as there are, and wakes the writers that wait for slabs. False
    /// if there are none.
    pub(super) async fn claim(&mut self, slabs: u64) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let claimed = slice.claim(slabs).await?;
        if claimed == 0 {
            slice.store.got_none(slice.id());
        }
        tracing::debug!(slice = %slice.id(), claimed, "slabs granted");
        self.committed();
        Ok(claimed > 0)
    }

    /// Gives back so many free net slabs, or as many as it can spare. False if it can spare none.
    pub(super) async fn give_back(&mut self, slabs: u64) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let given = slice.give_back(slabs).await?;
        tracing::debug!(slice = %slice.id(), given, "slabs given back");
        Ok(given > 0)
    }
}
