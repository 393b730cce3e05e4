//! Segments across drives.
//!
//! A segment has `data + parity` columns, each a slab of its own drive. It is written row by row: a
//! row is one or more stripes, and a stripe is `data` strips of equal length and the parity over
//! them. This layer knows where each byte of a segment's data lies, reads and writes it there, and
//! computes from parity what cannot be read; which drives a segment takes is the pool's choice.
//!
//! ```text
//! 1+0   one column, no redundancy
//! 1+m   a mirror: m copies of it, up to three
//! k+1   RAID-5: P, the XOR of the data
//! k+2   RAID-6: P, and Q over GF(2^8)
//! ```
//!
//! Promises: a byte offset into a segment's data means the same place for the life of the segment;
//! a write that returned has reached every column it concerns, but for those it names (not yet
//! hardened: see [`Columns::flush`]); parity is never changed in part, so no interrupted write
//! damages data that was there before; a read returns what was written or an error, for as long as
//! no more columns are lost than there are columns of parity; a drive that answers late delays a
//! read within one column no longer than the caller says, as far as the others can answer.
//!
//! Does not: know checksums. Who finds that data is not what it should be says which columns to do
//! without ([`alternatives`], [`Columns::read_without`]). Assumes of drives: what
//! [`quoin_drive::Drive`] promises.

mod alternatives;
pub mod bugs;
mod columns;
mod error;
mod gather;
mod geometry;
mod hedge;
mod hedging;
mod parity;
mod read;
mod repair;
mod write;

#[cfg(test)]
mod tests;

pub use alternatives::{alternatives, columns_of};
pub use columns::Columns;
pub use error::StripeError;
pub use geometry::{Column, ColumnSet, Geometry, StripeSet};
pub use hedging::{HedgedReads, Hedging};
pub use read::Read;
pub use write::Written;
