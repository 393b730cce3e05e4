//! How long rows are, and how much of a slab is left for blocks.

use super::{Segment, SegmentTable, Stream, stream::DATA_ALIGN_BYTES};
use crate::format::{PAGE_BYTES, ROW_CONTENTS};
use quoin_stripe::Geometry;

impl SegmentTable {
    /// Bytes of a full row.
    pub(crate) fn row_bytes(&self) -> u64 {
        u64::from(self.row_bytes)
    }

    /// Data bytes of a segment that is spread so.
    pub(crate) fn segment_bytes(&self, geometry: Geometry) -> u64 {
        geometry.segment_bytes(self.slab_bytes)
    }

    /// Data bytes of a new segment of data.
    pub(crate) fn most_segment_bytes(&self) -> u64 {
        self.segment_bytes(self.geometry_of_data())
    }

    pub(crate) fn slab_bytes(&self) -> u64 {
        u64::from(self.slab_bytes)
    }

    /// The most bytes of pool blocks that a net slab holds: all but the heads of rows and what is too short for a block.
    pub(crate) fn dense_bytes(&self, block_bytes: u64) -> u64 {
        self.dense_bytes_of(self.geometry_of_data(), block_bytes)
    }

    /// The same of a slab with data of a segment that is spread so.
    fn dense_bytes_of(&self, geometry: Geometry, block_bytes: u64) -> u64 {
        let head = DATA_ALIGN_BYTES;
        let full_row = longest_row(geometry, head, block_bytes, u64::MAX);
        let segment = self.segment_bytes(geometry);
        // A row takes whole stripes.
        let row_takes = full_row.next_multiple_of(geometry.stripe_bytes());
        let last_row = longest_row(geometry, head, block_bytes, segment % row_takes);
        let bytes = segment / row_takes * (full_row - head) + last_row.saturating_sub(head);
        bytes / u64::from(geometry.data)
    }

    pub(super) fn geometry_of_data(&self) -> Geometry {
        let layouts = &self.inner.read().layouts;
        layouts.geometry(layouts.of_data())
    }

    /// Bytes of a row of a segment that nothing ended early, if it begins where contents may begin.
    pub(crate) fn full_row_bytes(&self, segment: &Segment, block_bytes: u64) -> u64 {
        let (stream, geometry) = (segment.stream, segment.stripes.geometry);
        let len_bytes = match stream {
            Stream::Placed => self.row_end(stream, geometry),
            Stream::Meta => longest_row(geometry, PAGE_BYTES as u64, PAGE_BYTES as u64, u64::MAX),
            Stream::Data | Stream::Cleaned => longest_row(geometry, DATA_ALIGN_BYTES, block_bytes, u64::MAX),
        };
        len_bytes.next_multiple_of(geometry.stripe_bytes())
    }

    /// How long a row gets. A placed row has its head beside what others hold: as many blocks go into it as into a long write.
    pub(crate) fn row_end(&self, stream: Stream, geometry: Geometry) -> u64 {
        match stream {
            Stream::Placed => (stream.contents_begin(0, DATA_ALIGN_BYTES) + self.row_bytes())
                .next_multiple_of(geometry.stripe_bytes()),
            Stream::Data | Stream::Meta | Stream::Cleaned => geometry.row_bytes.into(),
        }
    }

    /// What a net slab may hold less than [`SegmentTable::dense_bytes`] without being worth cleaning: as much as
    /// the heads of rows that ended early may cost the segments it would be moved to, and what fills them up to a stripe.
    pub(crate) fn slack_bytes(&self, block_bytes: u64) -> u64 {
        self.slack_bytes_of(self.geometry_of_data(), block_bytes)
    }

    /// The most that may be live in a slab with data of a segment that is spread so, if it is worth cleaning.
    pub(super) fn most_live_bytes(&self, geometry: Geometry, block_bytes: u64) -> u64 {
        let dense = self.dense_bytes_of(geometry, block_bytes);
        dense.saturating_sub(self.slack_bytes_of(geometry, block_bytes))
    }

    fn slack_bytes_of(&self, geometry: Geometry, block_bytes: u64) -> u64 {
        let stripe = if geometry.data > 1 { geometry.stripe_bytes() / u64::from(geometry.data) } else { 0 };
        (self.dense_bytes_of(geometry, block_bytes) / 32)
            .max(3 * block_bytes / u64::from(geometry.data) + stripe)
    }
}

/// The longest row within `room` bytes whose contents, each of `content_bytes`, begin after `head` bytes.
fn longest_row(geometry: Geometry, head: u64, content_bytes: u64, room: u64) -> u64 {
    let room = room.min(u64::from(geometry.row_bytes));
    head + (room.saturating_sub(head) / content_bytes).min(ROW_CONTENTS as u64) * content_bytes
}
