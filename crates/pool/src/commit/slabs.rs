//! Slabs that the slice is granted, and those that it gives back.

use crate::{
    commit::{
        committer::Committer,
        decide::{Claims, Slabs},
        in_vain::InVain,
    },
    error::PoolError,
    store::Standing,
};

impl Committer {
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
