//! Writes of which, after a crash, all is there or nothing.
//!
//! A record of the journal is replayed whole or not at all, and so is a batch. A write within a region is one record. One that
//! reaches into the next region is two records, which are appended together to one batch.

use crate::{
    buffer::Shard,
    error::PoolError,
    fork::layer::Layer,
    format::{REGION_BYTES, RecordKind},
    host::{
        below::Below,
        stalls::Waits,
        write::{DataPiece, Refusal, received, record, take_front},
    },
    journal::{Batch, Entry},
    lifecycle::{pool::Pool, slice::Slice},
};
use quoin_base::{ByteRange, KIB, VolumeId};
use quoin_world::{Slice as Bytes, atomic::Ordering};
use std::{collections::VecDeque, sync::Arc};

/// The longest. A batch has room for one, and it reaches into one other region at most.
pub(crate) const ATOMIC_BYTES: u64 = 128 * KIB;
const _: () = assert!(ATOMIC_BYTES <= REGION_BYTES);

/// The part of a write that lies in one region.
struct Part {
    range: ByteRange,
    slices: Vec<Bytes>,
    pieces: Vec<DataPiece>,
    crcs: Vec<u32>,
}

impl Pool {
    /// Writes as [`Pool::write`] does, up to 128 KiB, of which after a crash all is there or nothing.
    ///
    /// # Errors
    /// Those of [`Pool::write`], and [`PoolError::Refused`] if it is longer; nothing is written, except that after
    /// [`PoolError::Offline`] all of it may be.
    pub async fn write_atomic(
        &self,
        volume: VolumeId,
        offset: u64,
        data: Vec<Bytes>,
    ) -> Result<(), PoolError> {
        self.slice_of(volume)?.write_atomic(volume, offset, data).await
    }
}

impl Slice {
    /// Writes the slices one after the other from byte `offset` on, all or nothing, hardened on return; else as
    /// [`Slice::write`].
    pub(crate) async fn write_atomic(
        &self,
        volume: VolumeId,
        offset: u64,
        data: Vec<Bytes>,
    ) -> Result<(), PoolError> {
        let range = ByteRange::new(offset, data.iter().map(|d| d.len() as u64).sum());
        self.check_write(range, &data)?;
        if range.len > ATOMIC_BYTES.min(self.log.journal.max_record_bytes()) {
            return Err(PoolError::Refused(format!("{} bytes are too many for an atomic write", range.len)));
        }
        if range.is_empty() {
            return Ok(());
        }
        let mut layer = self.confirmed_layer(volume).await?;
        let (started, mut waits) = (self.world().now(), Waits::default());
        self.check_rest(&layer, range).await?;
        let mut rest = data.into_iter().collect::<VecDeque<_>>();
        let mut parts = range.split(REGION_BYTES).map(|range| {
            let slices = take_front(&mut rest, range.len as usize);
            let (pieces, crcs) = self.data_pieces(range, &slices);
            Part { range, slices, pieces, crcs }
        });
        let batch = match (parts.next(), parts.next()) {
            (Some(first), Some(second)) => {
                self.append_admitted(&mut layer, range, range.len, &mut waits, |layer, below| {
                    self.try_append_both(layer, [&first, &second], below)
                })
                .await?
            }
            (Some(Part { range, slices, .. }), None) => {
                self.append_write(&mut layer, range, slices, &mut waits).await?
            }
            (None, _) => return Ok(()),
        };
        self.log.journal.hardened(&batch).await?;
        self.front.admission.ended(started, self.world().now(), waits);
        layer.volume.written_bytes.fetch_add(range.len, Ordering::Relaxed);
        self.counters.host.wrote(range.len);
        Ok(())
    }

    fn try_append_both(
        &self,
        layer: &Arc<Layer>,
        parts: [&Part; 2],
        below: Option<&Below>,
    ) -> Result<Arc<Batch>, Refusal> {
        let lane = self.log.journal.lane(self.world());
        let [first, second] = parts;
        let whole = ByteRange::new(first.range.offset, first.range.len + second.range.len);
        let slices = first.slices.len() + second.slices.len();
        lane.append_all(whole.len as usize, slices, |batch, payload_offset| {
            let key = |part: &Part| layer.block(part.pieces[0].index);
            let (mut shard, mut other) = self.buffer.shards_of(key(first), key(second));
            // Both are charged before anything of either is inserted.
            let replaced = {
                let shard_of_second: &Shard = other.as_deref().unwrap_or(&shard);
                let keys = |part: &'_ Part| part.pieces.iter().map(|piece| piece.index).collect::<Vec<_>>();
                let (first, second) = (keys(first), keys(second));
                let firsts = first.iter().map(|index| (&*shard, layer.block(*index)));
                let seconds = second.iter().map(|index| (shard_of_second, layer.block(*index)));
                self.charge_all(layer, whole, firsts.chain(seconds), below)?
            };
            let mut at = payload_offset;
            Ok(parts.map(|part| {
                let Part { range, slices, pieces, crcs } = part;
                let shard = match &mut other {
                    Some(other) if std::ptr::eq(part, second) => other,
                    _ => &mut shard,
                };
                let sequence = self.log.journal.take_sequence();
                self.buffer.insert(shard, sequence, batch, received(layer, pieces, crcs, at));
                at += range.len as u32;
                let is_own = |key: &&_| pieces.iter().any(|piece| layer.block(piece.index) == **key);
                let own: Vec<_> = replaced.iter().filter(is_own).copied().collect();
                self.buffer.waive(shard, &own);
                let mut header = record(layer, *range, RecordKind::Write);
                header.sequence = sequence.0.into();
                header.payload_bytes = (range.len as u32).into();
                Entry { header, crcs: crcs.clone(), payload: slices.clone(), row: None }
            }))
        })
    }
}
