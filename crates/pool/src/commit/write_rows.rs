//! Writing rows to drives.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    lifecycle::slice::Slice,
    meta::{Segment, Stream},
    segment::rows::{ComposedRow, Row},
    store::{
        Writer,
        pace::{PIECE_BYTES, Piece, Work},
    },
};
use futures_util::{StreamExt, future::join_all, stream};
use quoin_base::DriveIndex;
use quoin_stripe::ColumnSet;
use quoin_world::Slice as Bytes;
use std::collections::BTreeMap;

/// The most rows of one drive written at the same time. The pace may allow fewer.
const ROWS_OF_A_DRIVE: usize = 4;

impl Slice {
    /// Writes a row and returns its bytes. A placed one is hardened on return, and goes to its drive at once. Others go in
    /// pieces, at the pace of the background: what hosts wait for gets in between, where a long request would fill the
    /// drive's queue. A drive without room is waited for.
    pub(crate) async fn write_row(&self, row: Row) -> Result<u64, PoolError> {
        let store = &self.store;
        let unit = store.alignment(row.columns())?;
        let ComposedRow { segment, layout, stream, mut offset, len_bytes, data, pages } =
            row.compose(store.pool(), unit, &self.metadata.pages)?;
        let (end, mut lacking) = (offset + len_bytes, ColumnSet::default());
        let is_background = stream != Stream::Placed;
        let is_durable = !is_background && !planted(Bug::PlaceVolatile);
        let stripe = layout.stripes.geometry.row_unit_bytes();
        let piece_bytes =
            if is_background { (PIECE_BYTES / stripe * stripe).max(stripe) as usize } else { usize::MAX };
        // Each piece is whole stripes, so that no parity depends on what was there before.
        for piece in pieces(data, piece_bytes) {
            let piece_bytes: usize = piece.iter().map(|s| s.len()).sum();
            let paced =
                if is_background { self.enter_drives(&layout, piece_bytes as u64).await } else { Vec::new() };
            let write = || store.write_row(&layout.stripes, offset, piece.clone(), is_durable);
            lacking = lacking.with(store.write_patiently(self.world(), Writer::Committer, write).await?);
            for piece in paced {
                piece.done(self.world().now(), self.pressure());
            }
            offset += piece_bytes as u64;
        }
        assert_eq!(offset, end, "the pieces of a row are all of it");
        // NOTE: before anything leads to the row.
        self.segments.table.row_landed(segment, layout.generation, lacking);
        self.metadata.pages.written(pages);
        Ok(len_bytes)
    }

    /// The number of drives over which rows that follow one another are spread: one while few slabs are free, since each open
    /// segment keeps a slab from other uses.
    pub(crate) fn spread(&self) -> usize {
        let drives = self.store.data_drive_count();
        let plenty = 2 * self.space.clean_below() + drives as u64;
        if self.segments.table.usage().free_slabs > plenty { drives } else { 1 }
    }

    /// Waits until a piece of a row may go to all drives of its segment.
    async fn enter_drives(&self, segment: &Segment, bytes: u64) -> Vec<Piece> {
        let stripes = &segment.stripes;
        // NOTE: always in the order of their numbers, or two pieces could each wait for a drive that the other one has.
        let mut drives: Vec<_> = stripes.columns.iter().map(|column| column.drive).collect();
        drives.sort_unstable();
        let of_each = bytes / u64::from(stripes.geometry.data);
        let mut pieces = Vec::with_capacity(drives.len());
        for drive in drives {
            let pressure = || self.pressure();
            pieces.push(self.store.pace().enter(drive, (Work::Rows, of_each), self.world(), pressure).await);
        }
        pieces
    }

    /// Writes rows to several drives side by side, at the store's pace. Returns the bytes written.
    pub(crate) async fn write_rows(&self, rows: Vec<Row>) -> Result<u64, PoolError> {
        let mut by_drive: BTreeMap<DriveIndex, Vec<Row>> = BTreeMap::new();
        for row in rows {
            by_drive.entry(row.drive()).or_default().push(row);
        }
        let drives = by_drive.into_values().map(|rows| async move {
            let writes: Vec<_> = rows.into_iter().map(|row| self.write_row(row)).collect();
            stream::iter(writes).buffer_unordered(ROWS_OF_A_DRIVE).collect::<Vec<_>>().await
        });
        // NOTE: all end, also if one fails: a drive takes a write that nobody waits for as its failure.
        join_all(drives).await.into_iter().flatten().sum()
    }
}

/// The slices in groups of `piece_bytes`, but for the last.
fn pieces(data: Vec<Bytes>, piece_bytes: usize) -> Vec<Vec<Bytes>> {
    let (mut pieces, mut piece, mut room) = (Vec::new(), Vec::new(), piece_bytes);
    for mut slice in data {
        while slice.len() >= room {
            piece.push(slice.slice(..room));
            slice = slice.slice(room..);
            pieces.push(std::mem::take(&mut piece));
            room = piece_bytes;
        }
        if !slice.is_empty() {
            room -= slice.len();
            piece.push(slice);
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_world::Buf;

    #[test]
    fn pieces_hold_the_same_bytes_in_order() {
        let bytes: Vec<u8> = (0..40_960u32).map(|i| (i % 251) as u8).collect();
        let slices = |lens: &[usize]| {
            let mut at = 0;
            let cut = |len: &usize| {
                at += len;
                Buf::copy_of(&bytes[at - len..at]).into_slice()
            };
            lens.iter().map(cut).collect::<Vec<_>>()
        };
        for lens in [&[40_960][..], &[8192, 8192, 16_384, 8192], &[4096, 512, 36_352], &[512; 80]] {
            let cut = pieces(slices(lens), 16_384);
            let sizes: Vec<usize> = cut.iter().map(|p| p.iter().map(|s| s.len()).sum()).collect();
            assert_eq!(sizes, [16_384, 16_384, 8192], "{lens:?}");
            let joined: Vec<u8> = cut.iter().flatten().flat_map(|s| s.iter().copied()).collect();
            assert!(joined == bytes, "{lens:?}");
            assert!(cut.iter().flatten().all(|s| !s.is_empty()), "{lens:?}");
        }
    }
}
