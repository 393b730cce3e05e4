//! Reading what a location names.

use crate::{
    error::PoolError,
    format::{Location, PAGE_BYTES},
    meta::SegmentTable,
    store::Store,
};
use quoin_base::{ByteRange, SegmentId};
use quoin_world::{Buf, Slice as Bytes};
use std::sync::Arc;

pub(crate) struct SegmentIo {
    pub(crate) store: Arc<Store>,
    pub(crate) segments: Arc<SegmentTable>,
}

impl SegmentIo {
    /// The bytes at a location, as stored.
    pub(crate) async fn read(&self, location: Location) -> Result<Bytes, PoolError> {
        self.read_range(location.segment(), ByteRange::new(location.offset_bytes(), location.len_bytes()))
            .await
    }

    /// The bytes of a range of a segment's data.
    pub(crate) async fn read_range(&self, segment: SegmentId, range: ByteRange) -> Result<Bytes, PoolError> {
        let (geometry, columns) = self.segments.layout(segment).ok_or_else(|| {
            PoolError::corrupt("a location", format!("it names segment {segment}, which is free"))
        })?;
        let from = range.offset / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let to = range.end().next_multiple_of(PAGE_BYTES as u64);
        let buf: Buf = self.store.read_segment(geometry, &columns, ByteRange::new(from, to - from)).await?;
        Ok(buf.into_slice().slice((range.offset - from) as usize, range.len as usize))
    }
}
