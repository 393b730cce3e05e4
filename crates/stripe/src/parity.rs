//! Parity: arithmetic in GF(2^8), and sums over columns.
//!
//! The field is that of the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), in which 2 generates all
//! elements but 0. With data columns D0, D1, …, byte by byte:
//!
//! ```text
//! P = D0 + D1 + D2 + …            addition is XOR
//! Q = D0 + 2·D1 + 4·D2 + …        so that two lost columns follow from the rest, P and Q
//! ```
//!
//! Q is computed from the last column down: q = 2·q + d. Lengths are multiples of [`BLOCK_BYTES`]:
//! a block is added up in registers over all columns before the next one begins.

use crate::{
    ColumnSet, Geometry,
    bugs::{Bug, planted},
};
use quoin_world::{Buf, Slice};

/// What is computed at a time.
pub(crate) const BLOCK_BYTES: usize = 64;

type Block = [u8; BLOCK_BYTES];

/// What remains of the polynomial when x^8 is taken off.
const REDUCTION: u8 = 0x1D;

/// The product of two elements.
pub(crate) fn product(a: u8, b: u8) -> u8 {
    (0..8).rev().fold(0, |sum, bit| double(sum) ^ (a * (b >> bit & 1)))
}

/// 2 to this power, which may be negative.
pub(crate) fn power_of_two(exponent: i32) -> u8 {
    (0..exponent.rem_euclid(255)).fold(1, |power, _| double(power))
}

/// The inverse of an element that is not 0.
pub(crate) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    // The 255th power of every element is 1.
    (0..254).fold(1, |power, _| product(power, a))
}

const fn double(a: u8) -> u8 {
    (a << 1) ^ (if a >= 0x80 { REDUCTION } else { 0 })
}

#[inline(always)]
fn double_block(block: &mut Block) {
    for byte in block {
        *byte = double(*byte);
    }
}

#[inline(always)]
fn add_block(sum: &mut Block, block: &Block) {
    for (sum, byte) in sum.iter_mut().zip(block) {
        *sum ^= byte;
    }
}

fn blocks(bytes: &[u8]) -> &[Block] {
    let (blocks, rest) = bytes.as_chunks();
    assert!(rest.is_empty(), "{} bytes of a column are no whole blocks", bytes.len());
    blocks
}

fn blocks_mut(bytes: &mut [u8]) -> &mut [Block] {
    let (blocks, rest) = bytes.as_chunks_mut();
    assert!(rest.is_empty(), "a sum of columns is whole blocks");
    blocks
}

/// Writes the XOR of the columns, which are as long as it, to `p`.
fn write_p(columns: &[&[u8]], p: &mut [u8]) {
    let columns: Vec<&[Block]> = columns.iter().map(|column| blocks(column)).collect();
    for (at, p) in blocks_mut(p).iter_mut().enumerate() {
        let mut sum = [0; BLOCK_BYTES];
        for column in &columns {
            add_block(&mut sum, &column[at]);
        }
        *p = sum;
    }
}

/// Writes P and Q of the columns, which are as long as both.
fn write_p_and_q(columns: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    let columns: Vec<&[Block]> = columns.iter().map(|column| blocks(column)).collect();
    let parities = blocks_mut(p).iter_mut().zip(blocks_mut(q));
    for (at, (p, q)) in parities.enumerate() {
        let (mut sum, mut weighted) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        for column in columns.iter().rev() {
            add_block(&mut sum, &column[at]);
            double_block(&mut weighted);
            add_block(&mut weighted, &column[at]);
        }
        (*p, *q) = (sum, weighted);
    }
}

/// How a column follows from others: it is the sum of these, each times its factor. No factor is 0.
pub(crate) type Recipe = Vec<(usize, u8)>;

/// How the content of a column follows from the columns that are not lost; from itself alone if it
/// is none of them. `None`: too many are lost.
///
/// ```text
/// lost        the data column x is
/// x           P + sum of D[i]
/// x, P        (Q + sum of 2^i·D[i]) / 2^x
/// x, y        (Q + sum of 2^i·D[i] + 2^y·(P + sum of D[i])) / (2^x + 2^y)
/// ```
///
/// The sums are over the data columns that are not lost.
pub(crate) fn recipe(geometry: Geometry, column: usize, lost: ColumnSet) -> Option<Recipe> {
    if !lost.has(column) {
        return Some(vec![(column, 1)]);
    }
    let present = geometry.data_columns().without(lost);
    if geometry.data == 1 {
        let copy = geometry.all().without(lost).iter().next()?;
        return Some(vec![(copy, 1)]);
    }
    let (p, q) = (usize::from(geometry.data), usize::from(geometry.data) + 1);
    let is_there = |parity: usize| parity < geometry.columns() && !lost.has(parity);
    let mut others = geometry.data_columns().both(lost).without(ColumnSet::one(column)).iter();
    let (other, third) = (others.next(), others.next());
    if third.is_some() {
        return None;
    }
    if column >= p {
        // First of the data column that is lost, if any; this one then is a sum over all data.
        let weight = |data: usize| if column == p { 1 } else { power_of_two(data as i32) };
        let Some(other) = other else {
            return Some(present.iter().map(|data| (data, weight(data))).collect());
        };
        let mut recipe = recipe(geometry, other, lost)?;
        for (source, factor) in &mut recipe {
            *factor = product(*factor, weight(other)) ^ (if *source < p { weight(*source) } else { 0 });
        }
        return Some(recipe);
    }
    let weight = |data: usize| power_of_two(data as i32);
    let with = |factor: &dyn Fn(usize) -> u8, parity: &[(usize, u8)]| {
        Some(present.iter().map(|data| (data, factor(data))).chain(parity.iter().copied()).collect())
    };
    match (other, is_there(p), is_there(q)) {
        (None, true, _) => with(&|_| 1, &[(p, 1)]),
        (None, false, true) => {
            let share = inverse(weight(column));
            with(&|data| product(share, weight(data)), &[(q, share)])
        }
        (Some(other), true, true) => {
            let share = inverse(weight(column) ^ weight(other));
            let factor = |data| product(share, weight(data) ^ weight(other));
            with(&factor, &[(p, product(share, weight(other))), (q, share)])
        }
        _ => None,
    }
}

/// Writes the sum of the columns, each times its factor, to `sum`, which is as long as each.
///
/// Bit by bit from the highest down, over all columns at once: sum = 2·sum + those whose factor has
/// the bit.
pub(crate) fn write_sum(terms: &[(&[u8], u8)], sum: &mut [u8]) {
    let most = terms.iter().fold(0, |all, (_, factor)| all | factor).checked_ilog2().unwrap_or(0);
    let with_bit = |bit: u32| -> Vec<&[Block]> {
        let has_it = terms.iter().filter(|(_, factor)| factor >> bit & 1 == 1);
        has_it.map(|(column, _)| blocks(column)).collect()
    };
    let bits: Vec<_> = (0..=most).rev().map(with_bit).collect();
    for (at, to) in blocks_mut(sum).iter_mut().enumerate() {
        let mut sum = [0; BLOCK_BYTES];
        for columns in &bits {
            double_block(&mut sum);
            for column in columns {
                add_block(&mut sum, &column[at]);
            }
        }
        *to = sum;
    }
}

/// The parity over data columns that are given piece by piece, all equally long in sum: P, or P and
/// Q.
pub(crate) fn parity_of(geometry: Geometry, columns: &[Vec<Slice>]) -> Vec<Buf> {
    let len = columns.first().map_or(0, |pieces| pieces.iter().map(Slice::len).sum());
    let mut parity: Vec<_> = (0..geometry.parity).map(|_| Buf::unfilled(len)).collect();
    let mut rests: Vec<_> = columns.iter().map(|pieces| Rest { pieces, done: 0 }).collect();
    let mut at = 0;
    let mut heads = Vec::with_capacity(columns.len());
    while at < len {
        // As far as no column goes on in another piece.
        let step = rests.iter().map(Rest::len).min().expect("a segment has columns of data");
        heads.clear();
        heads.extend(rests.iter_mut().map(|rest| rest.take(step)));
        match &mut parity[..] {
            [p] => write_p(&heads, &mut p.as_mut_slice()[at..at + step]),
            [p, q] => write_p_and_q(
                &heads,
                &mut p.as_mut_slice()[at..at + step],
                &mut q.as_mut_slice()[at..at + step],
            ),
            _ => unreachable!("there are one or two columns of parity"),
        }
        at += step;
    }
    if planted(Bug::ForgetLastParity) {
        let strip = geometry.strip_bytes as usize;
        parity.iter_mut().for_each(|parity| parity.as_mut_slice()[len - strip..].fill(0));
    }
    parity
}

/// What is left of a column.
struct Rest<'a> {
    pieces: &'a [Slice],
    /// Of the first piece.
    done: usize,
}

impl<'a> Rest<'a> {
    /// How much of it follows in one piece.
    fn len(&self) -> usize {
        self.pieces.first().expect("columns are equally long").len() - self.done
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let piece = &self.pieces[0];
        let taken = &piece[self.done..self.done + len];
        self.done += len;
        if self.done == piece.len() {
            (self.pieces, self.done) = (&self.pieces[1..], 0);
        }
        taken
    }
}
