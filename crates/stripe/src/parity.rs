//! Parity: arithmetic in GF(2^8), and sums over columns.
//!
//! The field is that of the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), in which 2 generates all elements but 0. With
//! data columns D0, D1, …, byte by byte:
//!
//! ```text
//! P = D0 + D1 + D2 + …            addition is XOR
//! Q = D0 + 2·D1 + 4·D2 + …        so that two lost columns follow from the rest, P and Q
//! ```
//!
//! Q is computed from the last column down: q = 2·q + d. Lengths are multiples of [`BLOCK_BYTES`]: a block is
//! added up in registers over all columns before the next one begins.

use crate::{
    Geometry,
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
    assert!(rest.is_empty(), "{} bytes of parity are no whole blocks", rest.len());
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

/// The parity over data columns that are given piece by piece, all equally long in sum: P, or P and Q.
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
