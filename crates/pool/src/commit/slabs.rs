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

/// What the drives lack for data that was admitted before others were lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) enum Lack {
    #[default]
    Nothing,
    /// Only what checkpoints are kept is free.
    Room,
    /// Slabs are free, but on too few drives.
    Drives,
}

impl Committer {
    /// So many slabs must be free for segments to be opened for data that was admitted: `from`, if drives were lost, so that those
    /// that are left may lack some.
    pub(super) fn opens_from(&self, from: u64) -> u64 {
        if self.slice.store.may_lack_slabs() { from } else { 0 }
    }

    /// What there was no place for lacks, with segments opened only while `opens_from` slabs are free.
    pub(super) fn lack(&self, opens_from: u64) -> Result<Lack, PoolError> {
        match self.slice.segments.table.usage().free_slabs {
            // A drive may have been lost since.
            _ if opens_from == 0 && !self.slice.store.may_lack_slabs() => Err(out_of_slabs()),
            free if free < opens_from => Ok(Lack::Room),
            _ => Ok(Lack::Drives),
        }
    }

    /// Has `place` find a place for a page of a checkpoint that is being cut. If drives were lost since slabs were kept for it,
    /// those that are left may have none: then it waits until there is one.
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
                waits = Some(slice.store.wait_for_slabs_of_cut().ok_or_else(out_of_slabs)?);
                // Those who wait are refused.
                self.committed();
            }
            if !slice.store.may_retry(slice.world()).await? {
                // The pool is being closed, and what was cut is not written.
                slice.store.health().fail(PoolError::NoSpace.to_string());
                return Err(slice.store.health().error());
            }
            // What came free, and what drives brought.
            self.land()?;
            self.settle();
            let segment = slice.space.overhead().segment();
            if slice.may_grow() {
                slice.want(segment);
            }
            slice.claim(segment).await?;
        }
    }

    /// Notes what a batch lacked; `None` if none of it was data. Writes are refused from when nothing brings slabs any more until
    /// all data of a batch finds a place, or none is left that waits.
    pub(super) fn note_lack(&mut self, lack: Option<Lack>) {
        let is_short = match lack {
            _ if !self.lacks_slabs() => false,
            None => return,
            Some(Lack::Nothing) => false,
            // NOTE: asked while it is short too, so that other slices are.
            Some(lack) => !self.may_slabs_come(lack) || self.is_short(),
        };
        self.note_slabs(is_short);
    }

    /// Notes that nothing is buffered that could lack anything.
    pub(super) fn lacks_nothing_if_empty(&mut self) {
        if self.lacks_slabs() && self.slice.buffer.oldest().is_none() {
            self.retries.forget_unplaced();
            self.note_slabs(false);
        }
    }

    /// Whether slabs come without drives that bring some: from other slices, from the next checkpoint, or from the cleaner.
    fn may_slabs_come(&mut self, lack: Lack) -> bool {
        let slice = self.slice.clone();
        if slice.may_grow() && slice.claimable() > 0 {
            slice.want(slice.space.overhead().segment());
            return true;
        }
        let slabs = self.slabs();
        if lack == Lack::Room && slabs.free + slabs.coming >= slabs.place_from {
            return true;
        }
        // More was admitted than fits on the drives that are left, however well it is cleaned.
        if slice.space.is_overdrawn(slice.buffer.charged_blocks()) {
            return false;
        }
        match self.cleaning.in_vain() {
            // If it is due.
            InVain::No => slabs.free + slabs.coming < slabs.clean_below,
            InVain::ForNow | InVain::Retry => self.checkpoints.is_under_way() || slabs.awaits_checkpoint,
            InVain::Yes => false,
        }
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
