//! How what a layer owns is laid out, as a checkpoint records it.

use quoin_base::Layout;

/// How all that a layer owns is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Laid {
    /// Alike. `None`: as the pool.
    As(Option<Layout>),
    /// Alike once, and by now some of it may be laid out as drives allowed it at another time, or as another volume that has
    /// it wants or wanted it. None of it weighs less.
    Uneven(Option<Layout>),
    /// Some of it may be laid out otherwise than the rest, and weigh less.
    Mixed,
}

/// What is recorded of [`Laid::Mixed`]. No layout is.
const MIXED: u16 = u16::MAX;
/// Added to the columns of data of [`Laid::Uneven`]. No layout has as many.
const UNEVEN: u16 = 128;

impl Laid {
    /// Of what is laid out so, and something else that it is put together with.
    pub(crate) fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::As(one), Self::As(other)) if one == other => self,
            (Self::As(one) | Self::Uneven(one), Self::As(other) | Self::Uneven(other)) if one == other => {
                Self::Uneven(one)
            }
            _ => Self::Mixed,
        }
    }

    /// As it is recorded: columns of data and of parity; 0 and 0: as the pool.
    pub(crate) fn pack(self) -> u16 {
        match self {
            Self::As(None) => 0,
            Self::As(Some(layout)) => u16::from_le_bytes([layout.data(), layout.parity()]),
            Self::Uneven(layout) => Self::As(layout).pack() + UNEVEN,
            Self::Mixed => MIXED,
        }
    }

    /// What is recorded so; `None` if nothing is.
    pub(crate) fn unpack(packed: u16) -> Option<Self> {
        match (packed, packed.to_le_bytes()) {
            (0, _) => Some(Self::As(None)),
            (MIXED, _) => Some(Self::Mixed),
            (packed, [data, _]) if u16::from(data) >= UNEVEN => match Self::unpack(packed - UNEVEN) {
                Some(Self::As(layout)) => Some(Self::Uneven(layout)),
                _ => None,
            },
            (_, [data, parity]) => Layout::of_columns((data, parity)).map(|layout| Self::As(Some(layout))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_comes_back() {
        let layouts =
            [None, Layout::of_columns((1, 2)), Layout::of_columns((23, 2)), Layout::of_columns((4, 2))];
        let all = layouts.into_iter().flat_map(|layout| [Laid::As(layout), Laid::Uneven(layout)]);
        for laid in all.chain([Laid::Mixed]) {
            assert_eq!(Laid::unpack(laid.pack()), Some(laid));
        }
        // Of uneven ones too, columns must be possible; and nothing is uneven twice.
        for impossible in [UNEVEN + 5, 255, MIXED - 1, (1 << 8) | UNEVEN] {
            assert_eq!(Laid::unpack(impossible), None, "{impossible:#x}");
        }
    }
}
