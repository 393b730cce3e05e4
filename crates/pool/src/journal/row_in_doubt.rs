//! Makes the columns of placed blocks agree, before the pool serves.
//!
//! Recovery takes a batch in doubt if what its records lead to can be read and verifies. But a row that was on its way may
//! have reached some of its columns only, and hosts will read it: it must survive the loss of any column. So what was
//! taken is written to the columns that lack it, and parity is made anew. Rows that counted before the pool went down are
//! on all columns; only those in doubt are looked at.

use crate::{error::PoolError, store::Store};
use quoin_base::{ByteRange, crc32c};
use quoin_stripe::{ColumnSet, Read, StripeSet};
use quoin_world::Buf;

/// What a record in doubt leads to, which recovery takes.
#[derive(Clone, Debug)]
pub(crate) struct RowInDoubt {
    pub stripes: StripeSet,
    pub range: ByteRange,
    /// Of each block in the range.
    pub crcs: Vec<u32>,
}

impl RowInDoubt {
    /// Writes rows to all their columns. Durable on return.
    pub(crate) async fn mend_all(rows: &[Self], store: &Store) -> Result<(), PoolError> {
        // NOTE: first the data of all, then parity. Another row of the same stripes may be there only as long as its parity is.
        let mut read = Vec::new();
        for row in rows {
            row.mend_data(store, &mut read).await?;
        }
        // What was read from a parity tells that this one is right, before the rest is made to agree.
        for (stripes, range, left_out) in read {
            store.make_others_anew(stripes, range, left_out).await?;
        }
        for row in rows {
            store.make_parity_anew(&row.stripes, row.range).await?;
        }
        Ok(())
    }

    /// Writes it to the columns of data, or the copies, that lack it. Adds the ranges in which it was read, and the columns
    /// without which that was.
    async fn mend_data<'a>(
        &'a self,
        store: &Store,
        read: &mut Vec<(&'a StripeSet, ByteRange, ColumnSet)>,
    ) -> Result<(), PoolError> {
        // As a rule a column that lacks one block lacks all.
        if let Some(left_out) = Self::mend(store, &self.stripes, self.range, &self.crcs).await? {
            read.push((&self.stripes, self.range, left_out));
            return Ok(());
        }
        // Each block may be on other columns than the next.
        let block_bytes = self.range.len / self.crcs.len().max(1) as u64;
        for (block, crc) in self.range.split(block_bytes).zip(&self.crcs) {
            let Some(left_out) = Self::mend(store, &self.stripes, block, std::slice::from_ref(crc)).await?
            else {
                let what = format!("what was placed at {block:?} of a segment");
                return Err(PoolError::corrupt(
                    what,
                    "it was read when the journal was, and does not verify any more",
                ));
            };
            read.push((&self.stripes, block, left_out));
        }
        Ok(())
    }

    /// Writes blocks with these checksums to the columns of data that lack them, if there is a way to read all of them. Returns
    /// the columns without which they were read.
    async fn mend(
        store: &Store,
        stripes: &StripeSet,
        range: ByteRange,
        crcs: &[u32],
    ) -> Result<Option<ColumnSet>, PoolError> {
        let block_bytes = range.len as usize / crcs.len().max(1);
        let verifies =
            |bytes: &Buf| bytes.chunks(block_bytes).map(|block| crc32c(block).0).eq(crcs.iter().copied());
        // What lies there, with the columns left out that do not have it.
        for left_out in store.ways_to_read(stripes, range) {
            match store.read_segment_without(stripes, range, left_out).await {
                Ok(Read { content: bytes, unread }) if verifies(&bytes) => {
                    let left_out = left_out.with(unread);
                    store.rewrite_columns(stripes, range, left_out, &bytes.into_slice()).await?;
                    return Ok(Some(left_out));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FormatOptions, NewDrive, lifecycle::create::format};
    use quoin_base::{DriveIndex, MIB};
    use quoin_drive::{Roles, open_set};
    use quoin_stripe::{Column, Geometry};
    use quoin_world::Disk;
    use quoin_world_sim::{SimDisk, SimOptions, SimWorld};
    use std::sync::Arc;

    const GEOMETRY: Geometry = Geometry { data: 3, parity: 2, strip_bytes: 8192, row_bytes: 24 << 10 };
    const BLOCK: usize = 8 << 10;

    fn row(tag: u8) -> Buf {
        Buf::copy_of(&(0..3 * BLOCK).map(|at| (at / 7) as u8 ^ tag).collect::<Vec<_>>())
    }

    /// Five drives, and what runs with the store over them.
    fn run<F>(test: impl FnOnce(Vec<Arc<SimDisk>>, Store) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let world = SimWorld::new(1, SimOptions::default());
        let disks: Vec<_> = (0..5).map(|at| world.disk(&format!("d{at}"), 24 * MIB)).collect();
        let running = world.clone();
        let of_store = async move {
            let all: Vec<Arc<dyn Disk>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
            let roles = Roles { journal: true, data: true };
            let new = all.iter().map(|disk| NewDrive::alone(disk.clone(), roles));
            let options = FormatOptions {
                slab_bytes: 256 << 10,
                row_bytes: 16 << 10,
                journal_bytes: Some(3 << 20),
                layout: "3+2".parse().unwrap(),
                ..FormatOptions::default()
            };
            format(&*running, new.collect(), options).await.unwrap();
            let store = Store::take_over(open_set(all).await.unwrap()).await.unwrap();
            test(disks, store).await;
        };
        world.run(of_store).unwrap();
    }

    fn whole(slab: u32) -> StripeSet {
        let columns: Vec<_> = (0..5).map(|drive| Column { drive: DriveIndex(drive), slab }).collect();
        StripeSet { geometry: GEOMETRY, columns: columns.into(), missing: ColumnSet(0) }
    }

    /// Recovery takes what records of so many bytes each lead to. Then it is there, whichever columns it is read from.
    async fn is_mended(store: &Store, stripes: &StripeSet, of_record: usize, what: &str) {
        let expected = row(2);
        let range = ByteRange::new(0, expected.len() as u64);
        let in_doubt = |(at, bytes): (usize, &[u8])| RowInDoubt {
            stripes: stripes.clone(),
            range: ByteRange::new((at * of_record) as u64, bytes.len() as u64),
            crcs: bytes.chunks(BLOCK).map(|block| crc32c(block).0).collect(),
        };
        let rows: Vec<_> = expected.chunks(of_record).enumerate().map(in_doubt).collect();
        RowInDoubt::mend_all(&rows, store).await.unwrap();
        for left_out in store.ways_to_read(stripes, range) {
            let read = store.read_segment_without(stripes, range, left_out).await.unwrap();
            assert!(read.content[..] == expected[..], "{what}, without {left_out:?}");
        }
    }

    #[test]
    fn a_row_that_one_parity_lacks_survives_while_a_column_of_data_is_missing() {
        run(|_, store| async move {
            let cases = (0..3).flat_map(|missing| [0, 1, 2, 3, 4].map(|stale| (missing, stale)));
            let cases = cases.filter(|(missing, stale)| missing != stale);
            let cases = cases.flat_map(|(missing, stale)| [1, 3].map(|blocks| (missing, stale, blocks)));
            for (slab, (missing, stale, blocks)) in (20..).zip(cases) {
                let whole = whole(slab);
                store.write_row(&whole, 0, vec![row(1).into_slice()], true).await.unwrap();
                let mut before = Vec::new();
                for place in [missing, stale] {
                    before.push((place, store.read_slab(whole.columns[place], 0, BLOCK).await.unwrap()));
                }
                store.write_row(&whole, 0, vec![row(2).into_slice()], true).await.unwrap();
                for (place, content) in before {
                    store
                        .write_slab(whole.columns[place], 0, vec![content.into_slice()], true)
                        .await
                        .unwrap();
                }
                let stripes = StripeSet { missing: ColumnSet::one(missing), ..whole };
                let what = format!("{missing} is missing, {stale} was old, records of {blocks} blocks");
                is_mended(&store, &stripes, blocks * BLOCK, &what).await;
            }
        });
    }

    #[test]
    fn a_column_that_cannot_be_read_does_not_keep_a_row_from_being_taken() {
        run(|disks, store| async move {
            for (place, disk) in disks.iter().enumerate() {
                let stripes = whole(20 + place as u32);
                store.write_row(&stripes, 0, vec![row(2).into_slice()], true).await.unwrap();
                let at = store.byte_of_drive(stripes.columns[place], 0);
                disk.spoil(ByteRange::new(at, 512));
                is_mended(&store, &stripes, 3 * BLOCK, &format!("{place} could not be read")).await;
            }
        });
    }
}
