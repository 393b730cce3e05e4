//! A layer, in RAM: one version of an address space, where its map begins, and what is counted about it.
//!
//! A volume writes to the one layer that is its own, a *leaf*. A fork *freezes* it and makes two leaves of it; a frozen
//! layer changes only by what was buffered before. Until all of that is destaged its children are *pending*: they have
//! no map of their own yet, and their parent's buffered blocks lie below theirs.

use crate::{
    buffer::BlockKey,
    error::PoolError,
    fork::{
        changes::{Changes, LayerNote, Noted, NotedLists},
        layers::Layers,
    },
    format::ThinEntry,
    meta::{Laid, LayerImage},
    space::Claim,
};
use quoin_base::{BlockIndex, ByteRange, Compression, LayerId, Layout, Sequence, VolumeId};
use quoin_world::{
    Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};
use std::sync::Arc;

/// What stays with a volume from layer to layer.
pub(crate) struct VolumeState {
    pub id: VolumeId,
    /// Space promised to it; 0: none.
    pub reserved_bytes: AtomicU64,
    /// What its data is laid out as, packed; 0: as the pool's.
    layout: AtomicU64,
    /// How what is written to it is compressed.
    compression: AtomicU8,
    /// Whether what is written to it is deduplicated.
    is_deduplicated: AtomicBool,
    /// From here on nothing is written; not kept when the pool is closed.
    pub end: AtomicU64,
    /// Bytes hosts wrote since the pool was opened.
    pub written_bytes: AtomicU64,
    /// Bytes hosts read since the pool was opened.
    pub read_bytes: AtomicU64,
}

impl VolumeState {
    /// Of a new volume that is forked from this one: with the same layout, compression and deduplication, and nothing promised.
    pub(crate) fn forked(&self, id: VolumeId) -> Arc<Self> {
        Self::with(id, 0, self.layout(), (self.compression(), self.is_deduplicated()))
    }

    fn with(
        id: VolumeId,
        reserved_bytes: u64,
        layout: Option<Layout>,
        (compression, is_deduplicated): (Compression, bool),
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            reserved_bytes: AtomicU64::new(reserved_bytes),
            layout: AtomicU64::new(Laid::As(layout).pack().into()),
            compression: AtomicU8::new(compression as u8),
            is_deduplicated: AtomicBool::new(is_deduplicated),
            end: AtomicU64::new(u64::MAX),
            written_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        })
    }

    /// What its data is laid out as. `None`: as the pool's.
    pub(crate) fn layout(&self) -> Option<Layout> {
        match Laid::unpack(self.layout.load(Ordering::Acquire) as u16) {
            Some(Laid::As(layout)) => layout,
            _ => None,
        }
    }

    /// How what is written to it is compressed.
    pub(crate) fn compression(&self) -> Compression {
        Compression::from_byte(self.compression.load(Ordering::Acquire)).unwrap_or_default()
    }

    pub(crate) fn compress(&self, compression: Compression) {
        self.compression.store(compression as u8, Ordering::Release);
    }

    /// Whether what is written to it is deduplicated.
    pub(crate) fn is_deduplicated(&self) -> bool {
        self.is_deduplicated.load(Ordering::Acquire)
    }

    pub(crate) fn deduplicate(&self, is_on: bool) {
        self.is_deduplicated.store(is_on, Ordering::Release);
    }

    /// Whether what is written to it is compressed or deduplicated.
    pub(crate) fn is_reduced(&self) -> bool {
        self.is_deduplicated() || self.compression() != Compression::Off
    }

    pub(crate) fn lay_out(&self, layout: Option<Layout>) {
        self.layout.store(Laid::As(layout).pack().into(), Ordering::Release);
    }
}

/// A volume writes to it.
const LIVE: u8 = 0;
/// It was forked.
const FROZEN: u8 = 1;
/// It was given up, or is a part of another by now: its pages go to others.
const GONE: u8 = 2;

pub(crate) struct Layer {
    pub id: LayerId,
    /// The first layer of the tree of layers that it belongs to.
    pub family: LayerId,
    /// The volume whose it is, or was when it was frozen.
    pub volume: Arc<VolumeState>,
    /// The transaction that made it: records of its volume with lower sequences are not its own.
    pub born: Sequence,
    /// The transaction that froze it: nor are those from here on.
    frozen_at: AtomicU64,
    state: AtomicU8,
    pending: AtomicBool,
    /// False until the fork that made it what another volume now holds is hardened.
    confirmed: AtomicBool,
    parent: Mutex<Option<Arc<Layer>>>,
    /// The tree's root, a thin entry; 0: the tree is empty.
    pub root: Noted,
    /// Blocks its map leads to.
    pub mapped_blocks: Noted,
    /// Blocks that it owns: born in it, or in what became a part of it, and still referred to.
    pub owned_blocks: Noted,
    /// Blocks and tree pages whose birth names it.
    pub births: Noted,
    /// Of the references to blocks that it owns, those that count as lent: the block has or had others. Range copies and
    /// deduplication lend.
    lent_blocks: Noted,
    /// How often it lent a block that it had alone, since the pool was opened.
    loans: AtomicU64,
    /// What all it owns is laid out as, packed: see [`Laid`].
    laid: Noted,
    /// How often it became uneven or mixed, or took something over, since the pool was opened.
    mixes: AtomicU64,
    pub lists: NotedLists,
    note: Arc<LayerNote>,
}

impl Layer {
    /// The first of a new volume.
    pub(crate) fn new(id: LayerId, volume: VolumeId, born: Sequence, changes: &Arc<Changes>) -> Self {
        let layer = Self::from_image(&LayerImage::new(id, volume, born), None, changes);
        layer.note_change();
        layer
    }

    /// What `volume` writes to after a fork of `parent`.
    pub(crate) fn child(
        id: LayerId,
        parent: &Arc<Layer>,
        volume: Arc<VolumeState>,
        born: Sequence,
        changes: &Arc<Changes>,
    ) -> Self {
        let mut image = LayerImage::new(id, volume.id, born);
        (image.family, image.pending) = (parent.family, true);
        // It owns nothing, and what it writes is laid out as what its parent wrote, or as another volume is.
        let is_alike = volume.layout() == parent.volume.layout();
        image.laid = if is_alike { parent.laid() } else { Laid::Mixed };
        let child = Self::from_image(&image, Some(volume), changes);
        child.set_parent(Some(parent.clone()));
        child
    }

    /// As a checkpoint has it. The parent is known later; `volume` is given if it has layers already.
    pub(crate) fn from_image(
        image: &LayerImage,
        volume: Option<Arc<VolumeState>>,
        changes: &Arc<Changes>,
    ) -> Self {
        let note = LayerNote::new(image.id, image.volume, changes);
        let state = match image {
            LayerImage { gone: true, .. } => GONE,
            LayerImage { frozen_at: Some(_), .. } => FROZEN,
            _ => LIVE,
        };
        Self {
            id: image.id,
            family: image.family,
            volume: volume.unwrap_or_else(|| {
                let reduction = (image.compression, image.is_deduplicated);
                VolumeState::with(image.volume, image.reserved_bytes, image.layout, reduction)
            }),
            born: image.born,
            frozen_at: AtomicU64::new(image.frozen_at.map_or(u64::MAX, |sequence| sequence.0)),
            state: AtomicU8::new(state),
            pending: AtomicBool::new(image.pending),
            confirmed: AtomicBool::new(true),
            parent: Mutex::new(None),
            root: Noted::new(image.root, &note),
            mapped_blocks: Noted::new(image.mapped_blocks, &note),
            owned_blocks: Noted::new(image.owned_blocks, &note),
            births: Noted::new(image.births, &note),
            lent_blocks: Noted::new(image.lent_blocks, &note),
            loans: AtomicU64::new(0),
            laid: Noted::new(image.laid.pack().into(), &note),
            mixes: AtomicU64::new(0),
            lists: NotedLists::new(image.lists.clone(), &note),
            note,
        }
    }

    /// Notes that a checkpoint has to record it anew.
    pub(crate) fn note_change(&self) {
        self.note.changed();
    }

    pub(crate) fn image(&self) -> LayerImage {
        let frozen_at = self.frozen_at.load(Ordering::Acquire);
        let leaf = frozen_at == u64::MAX && !self.is_gone();
        LayerImage {
            id: self.id,
            family: self.family,
            volume: self.volume.id,
            parent: self.parent.lock().as_ref().map_or(LayerId(0), |parent| parent.id),
            born: self.born,
            frozen_at: (frozen_at != u64::MAX).then_some(Sequence(frozen_at)),
            root: self.root.load(Ordering::Acquire),
            mapped_blocks: self.mapped_blocks.load(Ordering::Relaxed),
            owned_blocks: self.owned_blocks.load(Ordering::Relaxed),
            births: self.births.load(Ordering::Relaxed),
            lent_blocks: self.lent(),
            reserved_bytes: if leaf { self.volume.reserved_bytes.load(Ordering::Relaxed) } else { 0 },
            layout: if leaf { self.volume.layout() } else { None },
            compression: if leaf { self.volume.compression() } else { Compression::Off },
            is_deduplicated: leaf && self.volume.is_deduplicated(),
            laid: self.laid(),
            pending: self.is_pending(),
            gone: self.is_gone(),
            lists: self.lists.lock().clone(),
        }
    }

    /// Of the blocks that it owns, how many others may own too: see [`BlockInfo::is_lent`](crate::format::BlockInfo::is_lent).
    pub(crate) fn lent(&self) -> u64 {
        let owned = self.owned_blocks.load(Ordering::Relaxed);
        self.lent_blocks.load(Ordering::Acquire).min(owned)
    }

    /// Notes that blocks of it are owned by others too.
    pub(crate) fn lend(&self, blocks: u64) {
        self.lent_blocks.fetch_add(blocks);
    }

    /// Notes that a block that it had alone is owned by others too.
    pub(crate) fn lend_first(&self) {
        self.loans.fetch_add(1, Ordering::AcqRel);
        self.lend(1);
    }

    /// How often it lent a block that it had alone, since the pool was opened.
    pub(crate) fn loans(&self) -> u64 {
        self.loans.load(Ordering::Acquire)
    }

    /// Notes that a block that others own too, or did, is not its own any more.
    pub(crate) fn end_loan(&self) {
        self.lent_blocks.store(self.lent_blocks.load(Ordering::Acquire).saturating_sub(1));
    }

    /// What all it owns is laid out as.
    pub(crate) fn laid(&self) -> Laid {
        Laid::unpack(self.laid.load(Ordering::Acquire) as u16).unwrap_or(Laid::Mixed)
    }

    /// All it owns is laid out alike from now on.
    pub(crate) fn set_laid(&self, layout: Option<Layout>) {
        self.laid.store(Laid::As(layout).pack().into());
    }

    /// What it owns may be laid out in two ways from now on, of which one weighs less.
    pub(crate) fn mix(&self) {
        self.now_laid(Laid::Mixed);
    }

    /// It takes over what another layer owns. A walk of it did not meet that, also if both are laid out alike.
    pub(crate) fn takes_over(&self, other: &Self) {
        self.now_laid(self.laid().with(other.laid()));
    }

    fn now_laid(&self, laid: Laid) {
        self.laid.store(laid.pack().into());
        self.mixes.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that something of it lies or will lie in a segment with this tag. True if it is uneven by that. The layout of
    /// its volume does not change while `_layers` is held.
    pub(crate) fn gets(&self, tag: Option<Layout>, _layers: &Layers) -> bool {
        match self.laid() {
            Laid::As(layout) if layout != tag => {
                self.now_laid(Laid::Uneven(layout));
                true
            }
            Laid::As(_) | Laid::Uneven(_) | Laid::Mixed => false,
        }
    }

    /// How often it became uneven or mixed, or took something over, since the pool was opened: a walk of it during which
    /// this grew has not met all.
    pub(crate) fn mixes(&self) -> u64 {
        self.mixes.load(Ordering::Acquire)
    }

    /// Whether all it owns is known to be laid out alike.
    pub(crate) fn is_alike(&self) -> bool {
        matches!(self.laid(), Laid::As(_))
    }

    /// Whether some of what it owns may be laid out otherwise than the rest, and weigh less.
    pub(crate) fn is_mixed(&self) -> bool {
        self.laid() == Laid::Mixed
    }

    /// Of the blocks that it owns, those that nobody reaches any more: they are being given back.
    pub(crate) fn unreached(&self) -> u64 {
        self.lists.lock().sifting_blocks.get(&self.id).copied().unwrap_or(0)
    }

    /// The blocks that it owns and that are reached.
    pub(crate) fn held(&self) -> u64 {
        self.owned_blocks.load(Ordering::Relaxed).saturating_sub(self.unreached())
    }

    /// The same of it and of all layers that it came from.
    pub(crate) fn held_with_parents(&self) -> u64 {
        let parents = std::iter::successors(self.parent(), |layer| layer.parent());
        self.held() + parents.map(|layer| layer.held()).sum::<u64>()
    }

    /// A block of it.
    pub(crate) fn block(&self, index: BlockIndex) -> BlockKey {
        BlockKey { layer: self.id, family: self.family, index }
    }

    /// Whose space a write to it may use.
    pub(crate) fn claim(&self) -> Claim {
        match self.volume.reserved_bytes.load(Ordering::Acquire) {
            0 => Claim::Free,
            _ => Claim::Reserved,
        }
    }

    /// Refuses what reaches beyond the end. Called under the lock of the range's shard.
    pub(crate) fn check_end(&self, range: ByteRange) -> Result<(), PoolError> {
        let end = self.volume.end.load(Ordering::Acquire);
        if range.end() > end { Err(PoolError::BeyondEnd { volume: self.volume.id, end }) } else { Ok(()) }
    }

    /// True while its volume writes to it. Changes under the locks of all shards when it is frozen.
    pub(crate) fn is_live(&self) -> bool {
        self.state.load(Ordering::Acquire) == LIVE
    }

    /// True once its map is taken apart under those who look: whatever they meet there, it does not count.
    pub(crate) fn is_gone(&self) -> bool {
        self.state.load(Ordering::Acquire) == GONE
    }

    pub(crate) fn freeze(&self, at: Sequence) {
        assert!(self.is_live(), "layer {} is frozen once, while its volume writes to it", self.id);
        // NOTE: in this order. A layer that is seen to be frozen tells up to which record it was live.
        self.frozen_at.store(at.0, Ordering::Release);
        self.state.store(FROZEN, Ordering::Release);
        self.note_change();
    }

    pub(crate) fn give_up(&self) {
        self.state.store(GONE, Ordering::Release);
        self.note_change();
    }

    /// True for the records of its volume that changed it.
    pub(crate) fn holds(&self, sequence: Sequence) -> bool {
        self.born <= sequence && sequence.0 < self.frozen_at.load(Ordering::Acquire)
    }

    pub(crate) fn parent(&self) -> Option<Arc<Layer>> {
        self.parent.lock().clone()
    }

    pub(crate) fn set_parent(&self, parent: Option<Arc<Layer>>) {
        *self.parent.lock() = parent;
        self.note_change();
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// The layer whose buffered blocks lie below its own, if there is one.
    pub(crate) fn below(&self) -> Option<Arc<Layer>> {
        if self.is_pending() { self.parent() } else { None }
    }

    /// Gives a pending layer its map: its parent's, which will not change any more.
    pub(crate) fn take_map(&self, parent: &Layer) {
        assert!(
            self.is_pending() && !parent.is_pending(),
            "layer {} takes the map of {}, which has one",
            self.id,
            parent.id
        );
        // NOTE: the map first. A reader that sees that the layer is not pending looks at its own map.
        self.root.store(parent.root.load(Ordering::Acquire));
        self.mapped_blocks.store(parent.mapped_blocks.load(Ordering::Relaxed));
        self.pending.store(false, Ordering::Release);
        self.note_change();
    }

    /// Where its map begins now: while it is pending, with the nearest ancestor that has one.
    pub(crate) fn map_root(&self) -> ThinEntry {
        match self.below() {
            None => ThinEntry(self.root.load(Ordering::Acquire)),
            Some(below) => below.map_root(),
        }
    }

    /// Blocks mapped, by its own map or by what it will be.
    pub(crate) fn mapped(&self) -> u64 {
        match self.below() {
            None => self.mapped_blocks.load(Ordering::Relaxed),
            Some(below) => below.mapped(),
        }
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::Acquire)
    }

    pub(crate) fn confirm(&self, confirmed: bool) {
        self.confirmed.store(confirmed, Ordering::Release);
    }
}
