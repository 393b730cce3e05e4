//! The part of the table of a drive that becomes longer.
//!
//! Pages are written for slabs that no page tells of so far. The last page that is there says of slabs behind the end that nobody
//! holds them, as of all that nobody was granted, and so stays as it is.

use super::{Grants, NOBODY, OfDrive, PAGES_AT_ONCE, position_in, write_copy};
use futures_util::{StreamExt, TryStreamExt, stream};
use quoin_base::GrantGeneration;
use quoin_drive::{Drive, DriveError, SLABS_PER_GRANT_PAGE};
use quoin_world::{AsyncMutexGuard, atomic::Ordering};
use std::sync::Arc;

/// A drive whose pages are there, durably, for more slabs than may be granted. No slab changes hands until this is dropped.
pub(in crate::store) struct Growing<'a> {
    drive: Arc<Drive>,
    slabs: u32,
    _turn: AsyncMutexGuard<'a>,
}

impl Grants {
    /// Writes the pages for a drive that is to have so many slabs; the new ones are ungranted. What its label says is as before.
    pub(in crate::store) async fn begin_to_grow(
        &self,
        drive: &Arc<Drive>,
        slabs: u32,
    ) -> Result<Growing<'_>, DriveError> {
        let turn = self.turn.lock().await;
        let there = {
            let drives = self.drives.lock();
            position_in(&drives, drive.index()).map_or(0, |at| drives[at].generations.len())
        };
        let mut longer = OfDrive {
            drive: drive.clone(),
            holders: vec![NOBODY; slabs as usize],
            generations: vec![GrantGeneration::default(); pages_of(slabs)],
            is_out: false,
        };
        let id = (self.pool, self.epoch);
        let new: Vec<_> =
            (there..pages_of(slabs)).map(|number| longer.next_page(id, number as u32, &[], NOBODY)).collect();
        for turn in 0..2 {
            let writes: Vec<_> = new.iter().map(|page| write_copy(drive, page, turn)).collect();
            stream::iter(writes).buffer_unordered(PAGES_AT_ONCE).try_collect::<Vec<()>>().await?;
        }
        Ok(Growing { drive: drive.clone(), slabs, _turn: turn })
    }

    /// The new slabs may be granted from now on. Labels and the table of members tell of them.
    pub(in crate::store) fn grow(&self, growing: Growing<'_>) {
        let mut drives = self.drives.lock();
        let Some(at) = position_in(&drives, growing.drive.index()) else { return };
        let of = &mut drives[at];
        assert!(of.holders.len() <= growing.slabs as usize, "a drive has no fewer slabs than before");
        let before = of.nobodys();
        of.holders.resize(growing.slabs as usize, NOBODY);
        of.generations.resize(pages_of(growing.slabs), GrantGeneration::default().next());
        let new = of.nobodys() - before;
        self.nobodys.fetch_add(new, Ordering::AcqRel);
    }
}

fn pages_of(slabs: u32) -> usize {
    slabs.div_ceil(SLABS_PER_GRANT_PAGE) as usize
}
