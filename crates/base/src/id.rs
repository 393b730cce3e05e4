//! Identifiers. Each is a newtype; none is ever used again for another object once given out, unless its
//! own documentation says so.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! uuid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// For numbers that are given out one behind the other.
macro_rules! in_order {
    ($name:ident) => {
        impl $name {
            /// The number that many behind this one.
            pub const fn plus(self, more: u64) -> $name {
                $name(self.0 + more)
            }

            /// The number behind this one.
            pub const fn next(self) -> $name {
                self.plus(1)
            }

            /// The numbers from this one on that are below `end`.
            pub fn until(self, end: $name) -> impl DoubleEndedIterator<Item = $name> + Clone {
                (self.0..end.0).map($name)
            }
        }
    };
}

/// For numbers by which the newest of several is known.
macro_rules! generation {
    ($name:ident) => {
        impl $name {
            /// That of the next.
            pub const fn next(self) -> $name {
                $name(self.0 + 1)
            }
        }
    };
}

number!(
    /// A volume within its pool. Never reused. Its highest four bits are the slice that holds it.
    VolumeId(u32)
);
number!(
    /// A pool owner's term. Only grows; a drive refuses a lower one than it has seen.
    Epoch(u64)
);
number!(
    /// A layer: one version of an address space. 24 bits on drives; 0 means "no layer". Never reused.
    LayerId(u32)
);
number!(
    /// The place of a record in the one order of all changes of a pool.
    Sequence(u64)
);
number!(
    /// Names the content of one block. 40 bits on drives; 0 means "no block". Reused only after the
    /// content is gone from every durable checkpoint and every read in flight.
    BlockNumber(u64)
);
in_order!(BlockNumber);
number!(
    /// A block within a volume or layer, in the order of its addresses: the first pool block is 0.
    BlockIndex(u64)
);
in_order!(BlockIndex);
number!(
    /// A page of metadata within its page space or, of a page that leads to others, within its level. What each space
    /// numbers is its own; in that of the trees 0 means "no page". Reused; in the space of the trees only after every
    /// read that may come by the page has ended.
    PageNumber(u64)
);
in_order!(PageNumber);
number!(
    /// A segment: a set of slabs, one a column, written row by row. Reused, under a new generation.
    SegmentId(u32)
);
number!(
    /// How often a segment was opened: grows each time, so that rows of an earlier use are known as such.
    SegmentGeneration(u32)
);
number!(
    /// A checkpoint of a slice, as its root has it. Each new root has a higher one.
    CheckpointGeneration(u64)
);
number!(
    /// A label of a drive: each one that is written has a higher one than the one before it.
    LabelGeneration(u64)
);
number!(
    /// A table of a pool's members. Within an epoch, each one that is written has a higher one.
    MembersGeneration(u64)
);
number!(
    /// A page that says to whom slabs are granted. Each time it is written it has a higher one.
    GrantGeneration(u64)
);
number!(
    /// A slice: one log of a pool. The first is 0.
    SliceId(u8)
);
number!(
    /// The position of a drive in its pool, as its label records it.
    DriveIndex(u16)
);
uuid!(
    /// The identity of a pool, in every label and journal extent of it.
    PoolId
);
uuid!(
    /// The identity of a drive, given when it is initialised.
    DriveId
);
uuid!(
    /// Who writes to the drives of a pool.
    HolderId
);

generation!(SegmentGeneration);
generation!(CheckpointGeneration);
generation!(LabelGeneration);
generation!(MembersGeneration);
generation!(GrantGeneration);

impl BlockIndex {
    /// Its first byte, in blocks of so many bytes.
    pub const fn offset_bytes(self, block_bytes: u64) -> u64 {
        self.0 * block_bytes
    }
}

/// Bits of a volume's id that count the volumes of its slice.
const VOLUME_BITS: u32 = 28;

impl VolumeId {
    /// The slice that holds the volume.
    pub const fn slice(self) -> SliceId {
        SliceId((self.0 >> VOLUME_BITS) as u8)
    }

    /// The first id, from 0 on, of the volumes of a slice.
    pub const fn first_of(slice: SliceId) -> VolumeId {
        VolumeId((slice.0 as u32) << VOLUME_BITS)
    }
}
