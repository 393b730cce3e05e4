//! How what a layer owns is laid out, as a checkpoint records it.

use quoin_base::Layout;

/// How all that a layer owns is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Laid {
    /// Alike. `None`: as the pool.
    As(Option<Layout>),
    /// Some of it may be laid out otherwise than the rest.
    Mixed,
}

/// What is recorded of [`Laid::Mixed`]. No layout is.
const MIXED: u16 = u16::MAX;

impl Laid {
    /// As it is recorded: columns of data and of parity; 0 and 0: as the pool.
    pub(crate) fn pack(self) -> u16 {
        match self {
            Self::As(None) => 0,
            Self::As(Some(layout)) => u16::from_le_bytes([layout.data(), layout.parity()]),
            Self::Mixed => MIXED,
        }
    }

    /// What is recorded so; `None` if nothing is.
    pub(crate) fn unpack(packed: u16) -> Option<Self> {
        match (packed, packed.to_le_bytes()) {
            (0, _) => Some(Self::As(None)),
            (MIXED, _) => Some(Self::Mixed),
            (_, [data, parity]) => Layout::of_columns((data, parity)).map(|layout| Self::As(Some(layout))),
        }
    }
}
