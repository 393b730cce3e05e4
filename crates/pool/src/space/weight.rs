//! How much more room a volume takes than its size because of a layout of its own.

use quoin_base::Layout;

/// What a byte of a volume may take, as a multiple of what it takes in the pool's layout.
///
/// Segments become narrower where domains run out of free slabs, down to copies. So a layout weighs as much as copies that
/// tolerate as many failures, and never less than the pool's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Weight(pub(super) u8);

impl Weight {
    /// That of the pool's layout.
    pub(crate) const ONE: Self = Self(32);

    /// Of a volume's layout in a pool with another. `None`: it has the pool's.
    pub(crate) fn of(layout: Option<Layout>, pool: Layout) -> Self {
        let Some(layout) = layout.filter(|layout| *layout != pool) else { return Self::ONE };
        let (data, columns) = (u64::from(pool.data()), u64::from(pool.columns()));
        let one = u64::from(Self::ONE.0);
        let copies = (one * (u64::from(layout.parity()) + 1) * data).div_ceil(columns);
        // Slabs of more domains: see `Layouts::net_grains`.
        let more = u64::from(layout.parity().saturating_sub(pool.parity()));
        let more = if more > 0 { one * (more + 1) } else { 0 };
        Self(u8::try_from(copies.max(more).max(one)).unwrap_or(u8::MAX))
    }

    /// So much, weighed.
    pub(crate) fn weigh(self, amount: u64) -> u64 {
        amount.saturating_mul(self.0.into()).div_ceil(Self::ONE.0.into())
    }

    /// Whether it is more than that of the pool's layout.
    pub(crate) fn is_more(self) -> bool {
        self > Self::ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_weighs_as_much_as_copies_that_tolerate_as_much() {
        let weight = |layout: &str, pool: &str| {
            Weight::of(Some(layout.parse().unwrap()), pool.parse().unwrap()).weigh(1_000_000)
        };
        assert_eq!(weight("mirror", "mirror"), 1_000_000);
        // What may become narrower, down to a mirror, is no more than a mirror and no less.
        assert_eq!(weight("raid5", "mirror"), 1_000_000);
        assert_eq!(weight("mirror", "raid5"), 1_500_000);
        assert_eq!(weight("8+2", "raid6"), 2_000_000);
        // A third copy may take the counterpart of another slab.
        assert_eq!(weight("mirror-3", "mirror"), 2_000_000);
        assert_eq!(weight("mirror-4", "mirror"), 3_000_000);
        assert_eq!(Weight::of(None, "raid5".parse().unwrap()), Weight::ONE);
    }

    #[test]
    fn every_weight_is_a_byte() {
        let every = || {
            let columns = (1..=Layout::MOST_DATA).flat_map(|data| (0..=3).map(move |parity| (data, parity)));
            columns.filter_map(Layout::of_columns)
        };
        for pool in every() {
            for layout in every().filter(|layout| layout.parity() >= pool.parity()) {
                let weight = Weight::of(Some(layout), pool);
                assert!(weight >= Weight::ONE && weight.0 < u8::MAX, "{layout} in {pool}: {weight:?}");
            }
        }
    }
}
