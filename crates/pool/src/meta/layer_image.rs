//! Layers as a checkpoint records them.

use crate::{
    error::PoolError,
    fork::lists::{DeadList, Lists},
    meta::{laid::Laid, reader::Reader},
};
use quoin_base::{Compression, LayerId, Layout, PageNumber, Sequence, VolumeId};
use std::collections::BTreeMap;

/// A layer's flags. Without `SIFTING`, no owners of blocks in the list that is being sifted are recorded.
const PENDING: u8 = 1;
const GONE: u8 = 2;
const SIFTING: u8 = 4;
const DEDUPLICATED: u8 = 8;

/// A layer as a checkpoint records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerImage {
    pub id: LayerId,
    pub family: LayerId,
    /// The volume whose it is or was.
    pub volume: VolumeId,
    /// 0: none.
    pub parent: LayerId,
    pub born: Sequence,
    pub frozen_at: Option<Sequence>,
    /// The entry of the tree's root; 0: the tree is empty.
    pub root: u64,
    pub mapped_blocks: u64,
    pub owned_blocks: u64,
    /// Blocks and tree pages whose birth names it.
    pub births: u64,
    /// Of the blocks that it owns, at least those that others own too.
    pub lent_blocks: u64,
    /// Space promised to its volume; 0: none.
    pub reserved_bytes: u64,
    /// What its volume's data is laid out as. `None`: as the pool's.
    pub layout: Option<Layout>,
    /// How what is written to its volume is compressed.
    pub compression: Compression,
    /// Whether what is written to its volume is deduplicated.
    pub is_deduplicated: bool,
    /// What all it owns is laid out as.
    pub laid: Laid,
    /// It has no map of its own yet.
    pub pending: bool,
    /// It was given up; what it owns is being given back.
    pub gone: bool,
    pub lists: Lists,
}

impl LayerImage {
    /// An empty one.
    pub(crate) fn new(id: LayerId, volume: VolumeId, born: Sequence) -> Self {
        Self {
            id,
            family: id,
            volume,
            parent: LayerId(0),
            born,
            frozen_at: None,
            root: 0,
            mapped_blocks: 0,
            owned_blocks: 0,
            births: 0,
            lent_blocks: 0,
            reserved_bytes: 0,
            layout: None,
            compression: Compression::Off,
            is_deduplicated: false,
            laid: Laid::As(None),
            pending: false,
            gone: false,
            lists: Lists::default(),
        }
    }

    /// Whether a volume writes to it.
    pub(crate) fn is_leaf(&self) -> bool {
        self.frozen_at.is_none() && !self.gone
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let ids = [self.id.0, self.family.0, self.volume.0, self.parent.0];
        ids.iter().for_each(|id| out.extend(id.to_le_bytes()));
        let frozen_at = self.frozen_at.map_or(0, |sequence| sequence.0);
        let words = [
            self.born.0,
            frozen_at,
            self.root,
            self.mapped_blocks,
            self.owned_blocks,
            self.births,
            self.lent_blocks,
            self.reserved_bytes,
            self.lists.dead.head.0,
            self.lists.dead.entries,
            self.lists.sifting.head.0,
            self.lists.sifting.entries,
        ];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        [Laid::As(self.layout), self.laid].iter().for_each(|laid| out.extend(laid.pack().to_le_bytes()));
        out.push(self.compression as u8);
        let flags = [
            (self.pending, PENDING),
            (self.gone, GONE),
            (self.is_sifting(), SIFTING),
            (self.is_deduplicated, DEDUPLICATED),
        ];
        out.push(flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum());
        encode_blocks(out, &self.lists.dead_blocks);
        if self.is_sifting() {
            encode_blocks(out, &self.lists.sifting_blocks);
        }
    }

    fn is_sifting(&self) -> bool {
        !self.lists.sifting_blocks.is_empty()
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, PoolError> {
        let (id, family) = (reader.layer()?, reader.layer()?);
        let (volume, parent) = (VolumeId(reader.u32()?), LayerId(reader.u32()?));
        let born = Sequence(reader.u64()?);
        let frozen_at = Some(Sequence(reader.u64()?)).filter(|sequence| sequence.0 != 0);
        let (root, mapped_blocks) = (reader.u64()?, reader.u64()?);
        let (owned_blocks, births) = (reader.u64()?, reader.u64()?);
        let (lent_blocks, reserved_bytes) = (reader.u64()?, reader.reservation()?);
        let dead = DeadList { head: PageNumber(reader.u64()?), entries: reader.u64()? };
        let sifting = DeadList { head: PageNumber(reader.u64()?), entries: reader.u64()? };
        let Some(Laid::As(layout)) = Laid::unpack(reader.u16()?) else {
            return Err(reader.damaged("the layout of a volume is impossible"));
        };
        let laid = Laid::unpack(reader.u16()?);
        let laid = laid.ok_or_else(|| reader.damaged("a layer is laid out in an impossible way"))?;
        let compression = reader.compression()?;
        let flags = reader.u8()?;
        if flags > PENDING + GONE + SIFTING + DEDUPLICATED {
            return Err(reader.damaged("a layer has unknown flags"));
        }
        let dead_blocks = decode_blocks(reader)?;
        let sifting_blocks = if flags & SIFTING != 0 { decode_blocks(reader)? } else { BTreeMap::new() };
        let lists = Lists { dead, dead_blocks, sifting, sifting_blocks };
        let (pending, gone) = (flags & PENDING != 0, flags & GONE != 0);
        let is_deduplicated = flags & DEDUPLICATED != 0;
        Ok(Self {
            id,
            family,
            volume,
            parent,
            born,
            frozen_at,
            root,
            mapped_blocks,
            owned_blocks,
            births,
            lent_blocks,
            reserved_bytes,
            layout,
            compression,
            is_deduplicated,
            laid,
            pending,
            gone,
            lists,
        })
    }
}

/// How many blocks of a list each layer owns.
fn encode_blocks(out: &mut Vec<u8>, blocks: &BTreeMap<LayerId, u64>) {
    out.extend((blocks.len() as u32).to_le_bytes());
    for (owner, blocks) in blocks {
        out.extend(owner.0.to_le_bytes());
        out.extend(blocks.to_le_bytes());
    }
}

fn decode_blocks(reader: &mut Reader<'_>) -> Result<BTreeMap<LayerId, u64>, PoolError> {
    let mut blocks = BTreeMap::new();
    for _ in 0..reader.u32()? {
        blocks.insert(reader.layer()?, reader.u64()?);
    }
    Ok(blocks)
}

/// What became of a layer that is a part of another by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    pub owner: LayerId,
    /// Blocks and tree pages whose birth names it still.
    pub births: u64,
}
