//! Layouts of volumes: which ones a pool can have, and what is done before a volume gets one.
//!
//! 1. A layout is reckoned with before anything is written in it: the space gauge charges every block as if it was of the
//!    heaviest layout, and what was charged less is destaged before the layout takes effect.
//! 2. A volume's layout tolerates as many failures as the pool's at least: the pool goes offline when anything is lost. It
//!    tolerates no more than the journal, which holds what was written last.

use crate::{
    error::PoolError,
    format::GRAIN_BYTES,
    lifecycle::{pool::Pool, slice::Slice},
    meta::{Laid, Transaction},
    store::Store,
};
use quoin_base::{Layout, VolumeId};
use quoin_world::atomic::Ordering;

/// Layouts that the volumes of a pool may have beside the pool's, while it is open. Each has segments of its own open.
const MOST_LAYOUTS: usize = 4;

/// What lies in segments of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutUse {
    /// What volumes ask for.
    pub layout: Layout,
    /// Live data, in bytes.
    pub data_bytes: u64,
    /// How many blocks that is.
    pub blocks: u64,
    /// What its segments take of drives, in bytes: with what protects the data, what is dead and what is not written yet.
    pub raw_bytes: u64,
    /// Live data in segments that tolerate fewer failures than the layout, in bytes.
    pub reduced_bytes: u64,
}

/// How a volume is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeLayout {
    /// What it is to be laid out as.
    pub layout: Layout,
    /// What new data of it is laid out as, with the fault domains that there are.
    pub layout_now: Layout,
    /// What it has, shared or not, in bytes.
    pub all_bytes: u64,
    /// How much of that may still lie otherwise, in bytes.
    pub left_bytes: u64,
    /// Its conversion has not ended.
    pub is_converting: bool,
    /// Conversion waits until there is more space.
    pub waits_for_space: bool,
}

impl Pool {
    /// How a volume is laid out; `None` if there is none of this id.
    pub fn volume_layout(&self, volume: VolumeId) -> Option<VolumeLayout> {
        self.slice_of(volume).ok()?.volume_layout(volume)
    }

    /// Bytes that were moved to other layouts since the pool was opened.
    pub fn converted_bytes(&self) -> u64 {
        self.slices().iter().map(|slice| slice.converting().moved_bytes()).sum()
    }

    /// What data takes, by layout, the pool's own first.
    pub fn layout_use(&self) -> Vec<LayoutUse> {
        let own = self.store().layout();
        let of = |layout| LayoutUse { layout, data_bytes: 0, blocks: 0, raw_bytes: 0, reduced_bytes: 0 };
        let mut used = vec![of(own)];
        let segments = self.slices().iter().flat_map(|slice| slice.segments.table.all());
        for (_, segment) in segments.filter(|(_, segment)| segment.is_used_for_data()) {
            let layout = segment.layout.unwrap_or(own);
            let at = used.iter().position(|known| known.layout == layout).unwrap_or_else(|| {
                used.push(of(layout));
                used.len() - 1
            });
            let live = u64::from(segment.live_grains) * GRAIN_BYTES;
            used[at].data_bytes += live;
            used[at].blocks += u64::from(segment.live_contents);
            used[at].raw_bytes += segment.stripes.columns.len() as u64 * u64::from(self.store().slab_bytes());
            if segment.stripes.geometry.parity < layout.parity() {
                used[at].reduced_bytes += live;
            }
        }
        used
    }

    /// What a pool lacks for volumes with a layout, in words, if anything. `is_forced`: it may get fewer columns than it asks
    /// for, for want of fault domains.
    pub fn layout_lacks(&self, layout: Layout, is_forced: bool) -> Option<String> {
        // NOTE: what the journal has now, and not what its label says that it may have: drives leave it and join it.
        let now = self.slices().iter().map(|slice| slice.log.journal.columns()).min().unwrap_or(0);
        lack(self.store(), now, layout, is_forced)
    }
}

/// The journal is on so many drives side by side `now`.
fn lack(store: &Store, now: u8, layout: Layout, is_forced: bool) -> Option<String> {
    let (own, journal) = (store.layout(), store.journal_columns() as u8);
    let domains = store.layouts().domain_count();
    let (columns, parity) = (usize::from(layout.columns()), layout.parity());
    let failures = |count: u8| if count == 1 { "1 failure".to_owned() } else { format!("{count} failures") };
    match () {
        () if layout == own => None,
        () if parity < own.parity() => Some(format!(
            "layout {} tolerates {}, and the layout of the pool {}; the whole pool goes offline when any data is lost: choose \
             a layout that tolerates as many failures at least",
            layout.described(),
            failures(parity),
            failures(own.parity())
        )),
        () if parity > own.parity() && own.parity() == 0 => Some(format!(
            "layout {} tolerates {}, and this pool, which was made with layout none, keeps its metadata once: make a pool \
             with a layout that tolerates failures",
            layout.described(),
            failures(parity)
        )),
        () if parity >= journal => Some(format!(
            "layout {} tolerates {}, and the journal, on {journal} drives side by side, {}: choose a layout that tolerates \
             no more, or make a pool with quoin init --journal-copies {}",
            layout.described(),
            failures(parity),
            failures(journal - 1),
            parity + 1
        )),
        () if !is_forced && parity >= now => Some(format!(
            "layout {} tolerates {}, and the journal is on {now} of {journal} drives now: add a drive with the journal, quoin \
             drive add --role journal",
            layout.described(),
            failures(parity)
        )),
        () if !is_forced && columns > domains => {
            let lacking = columns - domains;
            let drives = if lacking == 1 {
                "a drive in 1 other".to_owned()
            } else {
                format!("drives in {lacking} others")
            };
            Some(format!(
                "layout {} needs {columns} fault domains, and the pool has {domains}: add {drives}, or choose {}",
                layout.described(),
                fitting(own, domains, journal)
            ))
        }
        () => None,
    }
}

/// The named layouts that such a pool can have.
fn fitting(own: Layout, domains: usize, journal: u8) -> String {
    let named =
        ["raid6", "raid5", "2+1", "mirror-3", "mirror"].into_iter().filter_map(|name| name.parse().ok());
    let fits = |layout: &Layout| {
        usize::from(layout.columns()) <= domains
            && layout.parity() >= own.parity()
            && layout.parity() < journal
    };
    let mut fitting: Vec<Layout> = named.filter(fits).collect();
    if !fitting.contains(&own) {
        fitting.push(own);
    }
    fitting.iter().map(Layout::to_string).collect::<Vec<_>>().join(" or ")
}

impl Slice {
    fn volume_layout(&self, volume: VolumeId) -> Option<VolumeLayout> {
        let (table, block_bytes) = (&self.segments.table, self.buffer.block_bytes);
        let layers = self.forks.read();
        let leaf = layers.volumes.get(&volume)?;
        let wanted = leaf.volume.layout();
        let layout = wanted.unwrap_or(self.store.layout());
        let mut found = VolumeLayout {
            layout,
            layout_now: table.layouts().now(wanted),
            all_bytes: 0,
            left_bytes: 0,
            is_converting: false,
            waits_for_space: false,
        };
        for layer in std::iter::successors(Some(leaf.clone()), |layer| layer.parent()) {
            let owned = layer.owned_blocks.load(Ordering::Relaxed);
            found.all_bytes += owned * block_bytes;
            // The committer finds the layers that are shared: that takes a look at all volumes.
            let lies_otherwise = layer.id == leaf.id && layer.laid() != Laid::As(table.tag_of(wanted));
            let met = self.converting().met_blocks(layer.id);
            if lies_otherwise || !layer.is_alike() || met.is_some() {
                let met = met.unwrap_or(0);
                found.is_converting = true;
                found.left_bytes += owned.saturating_sub(met) * block_bytes;
            }
        }
        found.waits_for_space = found.is_converting && self.converting().waits_for_space();
        Some(found)
    }

    /// Reckons with the layouts that volumes get by a transaction. What was charged less is destaged then.
    pub(crate) async fn reckon_with_layouts(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let store = &self.store;
        let (own, journal) = (store.layout(), store.journal_columns() as u8);
        let is_possible = |layout: &Layout| {
            *layout == own || layout.parity() >= own.parity() && layout.parity() < journal && own.parity() > 0
        };
        if let Some(layout) = transaction.layouts().find(|layout| !is_possible(layout)) {
            let layout = layout.described();
            return Err(PoolError::Refused(format!("a volume of this pool cannot have layout {layout}")));
        }
        if !store.may_note_layouts(transaction.layouts(), MOST_LAYOUTS) {
            return Err(PoolError::Refused(format!(
                "volumes have {MOST_LAYOUTS} layouts already beside the pool's, or had since the array was started: give \
                 some the same layout, and start it again"
            )));
        }
        // What was admitted before is destaged while the layout is the old one still.
        if store.note_layouts(transaction.layouts()) {
            store.lay_out_tenants();
            self.converting().owe_drain();
        }
        if self.converting().owes_drain() && transaction.layouts().next().is_some() {
            self.drain().await?;
            self.converting().drained();
        }
        Ok(())
    }
}
