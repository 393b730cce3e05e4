//! Makes the columns of placed blocks agree, before the pool serves.
//!
//! Recovery takes a batch in doubt if what its records lead to can be read and verifies. But a row that was on its way may
//! have reached some of its columns only, and hosts will read it: it must survive the loss of any column. So what was
//! taken is written to the columns that lack it, and parity is made anew. Rows that counted before the pool went down are
//! on all columns; only those in doubt are looked at.

use crate::{
    error::PoolError,
    store::{Store, columns::in_columns},
};
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

/// How often what columns lack is written to them before they count as lacking it still.
const TRIES: u32 = 3;

/// A range of a row in doubt, as it was read.
struct Found<'a> {
    stripes: &'a StripeSet,
    range: ByteRange,
    /// The columns without which it was read.
    left_out: ColumnSet,
    /// What was written to the columns of data that lacked it is there.
    is_mended: bool,
}

impl RowInDoubt {
    /// Writes rows to all their columns. Durable on return.
    pub(crate) async fn mend_all(rows: &[Self], store: &Store) -> Result<(), PoolError> {
        // NOTE: first the data of all, then parity. Another row of the same stripes may be there only as long as its parity is.
        let mut found = Vec::new();
        for row in rows {
            row.mend_data(store, &mut found).await?;
        }
        // What was read from a parity tells that this one is right, before the rest is made to agree.
        for Found { stripes, range, left_out, .. } in &found {
            store.make_others_anew(stripes, *range, *left_out).await?;
        }
        for row in rows {
            // NOTE: a drive may lose writes silently. What did not get there is in parity alone.
            let lacking =
                |found: &&Found<'_>| !found.is_mended && found.stripes.columns == row.stripes.columns;
            let kept: Vec<_> = found
                .iter()
                .filter(lacking)
                .map(|found| in_columns(found.stripes.geometry, found.range))
                .collect();
            store.make_parity_anew(&row.stripes, row.range, &kept).await?;
        }
        Ok(())
    }

    /// Writes it to the columns of data, or the copies, that lack it. Adds how it was read.
    async fn mend_data<'a>(&'a self, store: &Store, found: &mut Vec<Found<'a>>) -> Result<(), PoolError> {
        // As a rule a column that lacks one block lacks all.
        if let Some(all) = Self::mend(store, &self.stripes, self.range, &self.crcs).await? {
            found.push(all);
            return Ok(());
        }
        // Each block may be on other columns than the next.
        let block_bytes = self.range.len / self.crcs.len().max(1) as u64;
        for (block, crc) in self.range.split(block_bytes).zip(&self.crcs) {
            let Some(one) = Self::mend(store, &self.stripes, block, std::slice::from_ref(crc)).await? else {
                let what = format!("what was placed at {block:?} of a segment");
                return Err(PoolError::corrupt(
                    what,
                    "it was read when the journal was, and does not verify any more",
                ));
            };
            found.push(one);
        }
        Ok(())
    }

    /// Writes blocks with these checksums to the columns of data that lack them, if there is a way to read all of them.
    async fn mend<'a>(
        store: &Store,
        stripes: &'a StripeSet,
        range: ByteRange,
        crcs: &[u32],
    ) -> Result<Option<Found<'a>>, PoolError> {
        let block_bytes = range.len as usize / crcs.len().max(1);
        let verifies =
            |bytes: &Buf| bytes.chunks(block_bytes).map(|block| crc32c(block).0).eq(crcs.iter().copied());
        // What lies there, with the columns left out that do not have it.
        for left_out in store.ways_to_read(stripes, range) {
            let (content, left_out) = match store.read_segment_without(stripes, range, left_out).await {
                Ok(Read { content, unread }) if verifies(&content) => {
                    (content.into_slice(), left_out.with(unread))
                }
                Ok(_) | Err(_) => continue,
            };
            // Of a mirror, a copy that lacks it harms no other.
            let written = match stripes.geometry.data {
                1 => ColumnSet::default(),
                _ => left_out.both(stripes.geometry.data_columns()).without(store.lost_columns(stripes)),
            };
            let mut is_mended = false;
            for _ in 0..TRIES {
                store.rewrite_columns(stripes, range, left_out, &content).await?;
                is_mended = written.is_empty() || {
                    let again = store.read_segment_without(stripes, range, left_out.without(written)).await;
                    again.is_ok_and(|again| again.unread.both(written).is_empty() && verifies(&again.content))
                };
                if is_mended {
                    break;
                }
            }
            if !is_mended {
                let drives: Vec<_> =
                    written.iter().map(|place| store.drive_name(stripes.columns[place].drive)).collect();
                tracing::warn!(?drives, ?range, "what was written is not on its drives; only parity has it");
            }
            return Ok(Some(Found { stripes, range, left_out, is_mended }));
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
    use quoin_world_sim::{FaultPlan, SimDisk, SimOptions, SimWorld};
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

    /// Recovery takes what records of so many bytes each lead to.
    async fn take(store: &Store, stripes: &StripeSet, of_record: usize) {
        let content = row(2);
        let in_doubt = |(at, bytes): (usize, &[u8])| RowInDoubt {
            stripes: stripes.clone(),
            range: ByteRange::new((at * of_record) as u64, bytes.len() as u64),
            crcs: bytes.chunks(BLOCK).map(|block| crc32c(block).0).collect(),
        };
        let rows: Vec<_> = content.chunks(of_record).enumerate().map(in_doubt).collect();
        RowInDoubt::mend_all(&rows, store).await.unwrap();
    }

    /// The same. Then it is there, whichever columns it is read from.
    async fn is_mended(store: &Store, stripes: &StripeSet, of_record: usize, what: &str) {
        let expected = row(2);
        let range = ByteRange::new(0, expected.len() as u64);
        take(store, stripes, of_record).await;
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

    #[test]
    fn what_a_drive_loses_again_is_left_in_parity() {
        run(|disks, store| async move {
            let cases = (0..3).flat_map(|stale| [None, Some(3), Some(4)].map(|parity| (stale, parity)));
            let cases = cases.flat_map(|(stale, parity)| [1, 3].map(|blocks| (stale, parity, blocks)));
            for (slab, (stale, parity, blocks)) in (20..).zip(cases) {
                let stripes = whole(slab);
                store.write_row(&stripes, 0, vec![row(1).into_slice()], true).await.unwrap();
                let lacking = [Some(stale), parity].into_iter().flatten();
                let mut before = Vec::new();
                for place in lacking.clone() {
                    before.push((place, store.read_slab(stripes.columns[place], 0, BLOCK).await.unwrap()));
                }
                store.write_row(&stripes, 0, vec![row(2).into_slice()], true).await.unwrap();
                for (place, content) in before {
                    let column = stripes.columns[place];
                    store.write_slab(column, 0, vec![content.into_slice()], true).await.unwrap();
                }
                disks[stale].set_faults(FaultPlan { lost_write: 1.0, ..FaultPlan::default() });
                take(&store, &stripes, blocks * BLOCK).await;
                disks[stale].set_faults(FaultPlan::default());
                let left_out = lacking.fold(ColumnSet::default(), |set, at| set.with(ColumnSet::one(at)));
                let range = ByteRange::new(0, 3 * BLOCK as u64);
                let read = store.read_segment_without(&stripes, range, left_out).await.unwrap();
                let what = format!("{stale} lost writes, {parity:?} was old, records of {blocks} blocks");
                assert!(read.content[..] == row(2)[..], "{what}");
            }
        });
    }

    #[test]
    fn parity_that_is_right_stays_while_a_column_of_data_is_missing() {
        run(|disks, store| async move {
            for (slab, (stale, loses)) in (20..).zip([(3, false), (4, false), (3, true), (4, true)]) {
                let whole = whole(slab);
                store.write_row(&whole, 0, vec![row(1).into_slice()], true).await.unwrap();
                let before = store.read_slab(whole.columns[stale], 0, BLOCK).await.unwrap();
                store.write_row(&whole, 0, vec![row(2).into_slice()], true).await.unwrap();
                store.write_slab(whole.columns[stale], 0, vec![before.into_slice()], true).await.unwrap();
                let stripes = StripeSet { missing: ColumnSet::one(0), ..whole };
                if loses {
                    disks[stale].set_faults(FaultPlan { lost_write: 1.0, ..FaultPlan::default() });
                    take(&store, &stripes, 3 * BLOCK).await;
                    disks[stale].set_faults(FaultPlan::default());
                } else {
                    // Only what lies beside the missing column is in doubt.
                    let range = ByteRange::new(BLOCK as u64, BLOCK as u64);
                    let crcs = vec![crc32c(&row(2)[BLOCK..2 * BLOCK]).0];
                    let rows = [RowInDoubt { stripes: stripes.clone(), range, crcs }];
                    RowInDoubt::mend_all(&rows, &store).await.unwrap();
                }
                let left_out = ColumnSet::one(0).with(ColumnSet::one(stale));
                let range = ByteRange::new(0, 3 * BLOCK as u64);
                let read = store.read_segment_without(&stripes, range, left_out).await.unwrap();
                assert!(
                    read.content[..] == row(2)[..],
                    "parity {stale} was old, its drive lost it again: {loses}"
                );
            }
        });
    }
}
