//! Which columns to do without when data is not what it should be.

use crate::{ColumnSet, Geometry, StripeSet};
use quoin_base::ByteRange;

/// The data columns that a range of a segment's data lies on.
pub fn columns_of(geometry: Geometry, range: ByteRange) -> ColumnSet {
    let lies_on = |column: &usize| !geometry.column_range(range, *column).is_empty();
    geometry
        .data_columns()
        .iter()
        .filter(lies_on)
        .map(ColumnSet::one)
        .fold(ColumnSet::default(), ColumnSet::with)
}

/// The ways to read a range that a checksum says is wrong, for
/// [`Columns::read_without`](crate::Columns::read_without): the columns to leave out, in the order
/// in which to try them.
///
/// First each column alone on which the range lies, of a mirror each copy. Then, with double
/// parity, each of those together with another column of data or with P; of a mirror, ever more
/// copies at a time. Columns that are missing are left out anyway and are in no set; a set without
/// which too few columns remain is not listed.
pub fn alternatives(set: &StripeSet, range: ByteRange) -> Vec<ColumnSet> {
    let geometry = set.geometry;
    if !geometry.is_possible() {
        return Vec::new();
    }
    let all = match geometry.data {
        1 => subsets(geometry.all()),
        _ => singles_and_pairs(geometry, columns_of(geometry, range)),
    };
    let mut alternatives = Vec::new();
    for left_out in all.into_iter().map(|left_out| left_out.without(set.missing)) {
        let is_possible = left_out.with(set.missing).len() <= usize::from(geometry.parity);
        if is_possible && !left_out.is_empty() && !alternatives.contains(&left_out) {
            alternatives.push(left_out);
        }
    }
    alternatives
}

fn subsets(copies: ColumnSet) -> Vec<ColumnSet> {
    let mut subsets: Vec<_> = (1..=copies.0).map(ColumnSet).collect();
    subsets.sort_by_key(|subset| subset.len());
    subsets
}

fn singles_and_pairs(geometry: Geometry, concerned: ColumnSet) -> Vec<ColumnSet> {
    let singles = concerned.iter().map(ColumnSet::one);
    // Q is read only beside a column that is left out.
    let first_parity = ColumnSet::one(geometry.data.into());
    let others = geometry.data_columns().with(first_parity);
    let pairs = concerned.iter().flat_map(|column| {
        let others = others.without(ColumnSet::one(column)).iter();
        others.map(move |other| ColumnSet::one(column).with(ColumnSet::one(other)))
    });
    singles.chain(pairs).collect()
}
