//! Slabs that the slice is granted, and those that it gives back.

use crate::{
    commit::{
        committer::Committer,
        decide::{Claims, Slabs},
    },
    error::PoolError,
};

impl Committer {
    pub(super) fn claims(&self, slabs: &Slabs) -> Claims {
        let (slice, store) = (&self.slice, &self.slice.store);
        // If cleaning gained nothing, only slabs that are free or coming can be given back.
        let at_most = match self.cleaned_in_vain {
            true => (slabs.free + slabs.coming).saturating_sub(slabs.clean_below),
            false => u64::MAX,
        };
        let owed = slice.tell_spare(at_most);
        Claims {
            slices: store.slices().count() as u64,
            nobodys: store.nobodys_slabs(),
            claimable: store.claimable(slice.id),
            wanted: store.wanted_by(slice.id),
            room: slice.space.room_slabs(slice.buffer.charged_blocks()),
            owed,
        }
    }

    /// Takes so many ungranted slabs, or as many as there are, and wakes the writers that wait for slabs. False
    /// if there are none.
    pub(super) async fn claim(&mut self, slabs: u64) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let claimed = slice.claim(slabs).await?;
        if claimed == 0 {
            slice.store.got_none(slice.id);
        }
        tracing::debug!(slice = %slice.id, claimed, "slabs granted");
        self.committed();
        Ok(claimed > 0)
    }

    /// Gives back so many free slabs, or as many as it can spare. False if it can spare none.
    pub(super) async fn give_back(&mut self, slabs: u64) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let given = slice.give_back(slabs).await?;
        tracing::debug!(slice = %slice.id, given, "slabs given back");
        Ok(given > 0)
    }
}
