//! Arithmetic in GF(2^8), and what columns follow from, beside slow definitions.

use super::*;
use crate::parity::{BLOCK_BYTES, inverse, parity_of, power_of_two, product, recipe, write_sum};
use proptest::prelude::*;

/// Multiplies polynomials over GF(2) bit by bit, then takes off multiples of that of the field.
fn slow_product(a: u8, b: u8) -> u8 {
    let mut long = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u16, |sum, bit| sum ^ u16::from(a) << bit);
    for bit in (8..16).rev() {
        if long >> bit & 1 == 1 {
            long ^= 0x11D << (bit - 8);
        }
    }
    long as u8
}

#[test]
fn products_powers_and_inverses_are_those_of_the_field() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(product(a, b), slow_product(a, b), "{a} {b}");
        }
        assert!(a == 0 || slow_product(a, inverse(a)) == 1);
    }
    // 2 generates all elements but 0.
    let mut powers: Vec<_> = (0..255).map(power_of_two).collect();
    assert!(powers.array_windows().all(|[a, b]| slow_product(*a, 2) == *b));
    assert_eq!((power_of_two(255), power_of_two(-1), power_of_two(8)), (1, inverse(2), 0x1D));
    powers.sort_unstable();
    assert!(powers.into_iter().eq(1..=255));
}

/// The columns of one block, the last ones of parity.
fn columns(geometry: Geometry, salt: u64) -> Vec<Vec<u8>> {
    let data = (0..u64::from(geometry.data)).map(|column| content(BLOCK_BYTES, salt * 64 + column));
    let mut columns: Vec<_> = data.collect();
    if geometry.data == 1 {
        return vec![columns.remove(0); geometry.columns()];
    }
    let sum = |weight: &dyn Fn(usize) -> u8| -> Vec<u8> {
        let terms = |at: usize| columns.iter().enumerate().map(move |(i, c)| slow_product(c[at], weight(i)));
        (0..BLOCK_BYTES).map(|at| terms(at).fold(0, |sum, term| sum ^ term)).collect()
    };
    let parity = [sum(&|_| 1), sum(&|i| (0..i).fold(1, |power, _| slow_product(power, 2)))];
    columns.extend(parity.into_iter().take(geometry.parity.into()));
    columns
}

/// Every layout, and in it every set of columns that may be lost and every one that is too many by
/// one.
#[test]
fn every_lost_column_follows_from_the_rest_as_long_as_not_too_many_are_lost() {
    let mirrors = (0..=3).map(|parity| geometry(1, parity));
    let others = (2..=23).flat_map(|data| (0..=2).map(move |parity| geometry(data, parity)));
    for geometry in mirrors.chain(others) {
        let (columns, count) = (columns(geometry, 5), geometry.columns());
        let follows = |lost: ColumnSet| {
            let within = lost.len() <= usize::from(geometry.parity);
            for column in lost.iter() {
                let Some(recipe) = recipe(geometry, column, lost) else {
                    assert!(!within, "{geometry:?} without {lost:?}: {column}");
                    continue;
                };
                assert!(recipe.iter().all(|(source, factor)| !lost.has(*source) && *factor != 0));
                let terms: Vec<_> = recipe.iter().map(|(source, f)| (&columns[*source][..], *f)).collect();
                let mut sum = [0xEE; BLOCK_BYTES];
                write_sum(&terms, &mut sum);
                assert!(sum == columns[column][..], "{geometry:?} without {lost:?}: {column}");
            }
        };
        for a in 0..count {
            for b in 0..count {
                follows(ColumnSet::one(a).with(ColumnSet::one(b)));
                for c in 0..count.min(6) {
                    follows(ColumnSet::one(a).with(ColumnSet::one(b)).with(ColumnSet::one(c)));
                }
            }
        }
        follows(geometry.all());
    }
}

proptest! {
    /// However the data is cut.
    #[test]
    fn parity_is_that_of_the_definition(
        data in 2u8..=23,
        parity in 1u8..=2,
        cuts in proptest::collection::vec(1usize..9, 23),
        salt in 0u64..1000,
    ) {
        let geometry = Geometry { data, parity, strip_bytes: 4096, row_bytes: 0 };
        // Of blocks with 64 bytes each, as the definition above.
        let blocks: Vec<_> = (0..16).map(|block| columns(geometry, salt * 16 + block)).collect();
        let whole = |column: usize| blocks.iter().flat_map(|block| block[column].clone()).collect::<Vec<_>>();
        let pieces: Vec<_> = (0..usize::from(data)).map(|i| cut(&whole(i), cuts[i] * BLOCK_BYTES)).collect();
        let computed = parity_of(geometry, &pieces);
        prop_assert_eq!(computed.len(), usize::from(parity));
        for (at, computed) in computed.iter().enumerate() {
            prop_assert!(computed[..] == whole(usize::from(data) + at)[..]);
        }
    }
}
