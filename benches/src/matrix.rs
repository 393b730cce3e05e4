//! The rows that are compared, and what counts as equal in each.

use crate::drive::{Access, Flush};
use crate::echo::Exchange;
use crate::load::Pattern;
use crate::tgtd::Store;

/// Where a row's data is when the measurement begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// Small and just read: in memory, if the target keeps anything there.
    Cached,
    /// Large, on the drive.
    Drive,
}

/// One workload for all targets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) pattern: Pattern,
    pub(crate) io_bytes: u64,
    pub(crate) depth: usize,
    pub(crate) data: Data,
    /// tgtd's backing stores in this row.
    stores: &'static [Store],
}

const CACHED: &[Store] = &[Store::RDWR, Store::AIO];
const DIRECT: &[Store] = &[Store::AIO, Store::RDWR_DIRECT];
const SEQUENTIAL: &[Store] = &[Store::AIO, Store::RDWR_DIRECT, Store::RDWR];
const WRITTEN: &[Store] = &[Store::RDWR_SYNC, Store::RDWR_SYNC_DIRECT, Store::AIO, Store::RDWR];

const fn row(
    id: &'static str,
    title: &'static str,
    pattern: Pattern,
    (kib, depth): (u64, usize),
    data: Data,
    stores: &'static [Store],
) -> Row {
    Row { id, title, pattern, io_bytes: kib << 10, depth, data, stores }
}

/// Share of reads in the mixed row, in percent.
pub(crate) const MIX: u64 = 70;

/// All rows, in the order of the report.
pub(crate) const ROWS: [Row; 11] = {
    use Data::{Cached, Drive};
    use Pattern::{Randread, Randrw, Randwrite, Read, Write};
    [
        row("cached-read-d32", "8 KiB random read from cache, depth 32", Randread, (8, 32), Cached, CACHED),
        row("cached-read-d1", "8 KiB random read from cache, depth 1", Randread, (8, 1), Cached, CACHED),
        row("drive-read-d32", "8 KiB random read from the drive, depth 32", Randread, (8, 32), Drive, DIRECT),
        row("drive-read-d1", "8 KiB random read from the drive, depth 1", Randread, (8, 1), Drive, DIRECT),
        row("write-d32", "8 KiB random durable write, depth 32", Randwrite, (8, 32), Drive, WRITTEN),
        row("write-d1", "8 KiB random durable write, depth 1", Randwrite, (8, 1), Drive, WRITTEN),
        row("mix-d32", "8 KiB random, 70 % reads, durable writes, depth 32", Randrw, (8, 32), Drive, WRITTEN),
        row("seqread-64k", "64 KiB sequential read, depth 16", Read, (64, 16), Drive, SEQUENTIAL),
        row("seqread-1m", "1 MiB sequential read, depth 8", Read, (1024, 8), Drive, SEQUENTIAL),
        row("seqwrite-64k", "64 KiB sequential durable write, depth 16", Write, (64, 16), Drive, WRITTEN),
        row("seqwrite-1m", "1 MiB sequential durable write, depth 8", Write, (1024, 8), Drive, WRITTEN),
    ]
};

/// Who is measured in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Quoin,
    Tgtd(Store),
}

impl Peer {
    pub(crate) fn name(&self) -> String {
        match self {
            Peer::Quoin => "Quoin".to_owned(),
            Peer::Tgtd(store) => format!("tgtd {}", store.name()),
        }
    }
}

/// A bare measurement of what the row's I/O would cost without a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Drive(Access),
    Echo(Exchange),
}

impl Limit {
    pub(crate) fn name(&self) -> String {
        match self {
            Limit::Drive(Access { flush: Flush::None, .. }) => "bare file, io_uring".to_owned(),
            Limit::Drive(Access { flush: Flush::Each, .. }) => "bare file, each write flushed".to_owned(),
            Limit::Drive(Access { flush: Flush::Batch, .. }) => "bare file, one flush a batch".to_owned(),
            Limit::Echo(_) => "TCP echo".to_owned(),
        }
    }
}

impl Row {
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.pattern, Pattern::Randread | Pattern::Read)
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = Peer> {
        std::iter::once(Peer::Quoin).chain(self.stores.iter().map(|&store| Peer::Tgtd(store)))
    }

    /// Why a peer's figure is not to be held against Quoin's, if it is not.
    pub(crate) fn inequality(&self, peer: Peer) -> Option<&'static str> {
        match peer {
            Peer::Tgtd(store) if self.writes() && !store.is_durable() => Some("not durable"),
            Peer::Tgtd(Store::RDWR) if self.data == Data::Drive => Some("from the page cache"),
            _ => None,
        }
    }

    pub(crate) fn limits(&self) -> Vec<Limit> {
        let random = !matches!(self.pattern, Pattern::Read | Pattern::Write);
        let mix = (self.pattern == Pattern::Randrw).then_some(MIX);
        let (write, depth, io_bytes) = (self.writes(), self.depth, self.io_bytes);
        let flushes: &[Flush] = match (write, depth) {
            (false, _) => &[Flush::None],
            (true, 1) => &[Flush::Each],
            (true, _) => &[Flush::Each, Flush::Batch],
        };
        let drive =
            flushes.iter().map(|&flush| Limit::Drive(Access { write, random, mix, io_bytes, depth, flush }));
        // A mix is mostly reads: its echo is shaped like one.
        let echo = Limit::Echo(Exchange::of(write && mix.is_none(), io_bytes, depth));
        drive.filter(|_| self.data == Data::Drive).chain([echo]).collect()
    }
}

/// The rows whose ids contain one of the words; all if there are none.
pub(crate) fn select(words: &[String]) -> Result<Vec<Row>, String> {
    let wanted = |row: &Row| words.is_empty() || words.iter().any(|word| row.id.contains(word.as_str()));
    let rows: Vec<Row> = ROWS.into_iter().filter(wanted).collect();
    match rows.is_empty() {
        true => Err(format!("no such row; there are {}", ROWS.map(|row| row.id).join(", "))),
        false => Ok(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_an_equal_peer_and_a_limit() {
        for row in ROWS {
            assert!(
                row.peers().any(|peer| peer != Peer::Quoin && row.inequality(peer).is_none()),
                "{}",
                row.id
            );
            assert!(row.limits().len() > usize::from(row.data == Data::Drive), "{}", row.id);
            assert_eq!(select(&[row.id.to_owned()]).unwrap()[0].id, row.id);
        }
        assert!(select(&["nonsense".to_owned()]).unwrap_err().contains("write-d1"));
    }

    #[test]
    fn what_is_not_flushed_is_not_equal_to_what_is() {
        let written = select(&["write-d32".to_owned()]).unwrap()[0];
        assert_eq!(written.inequality(Peer::Tgtd(Store::AIO)), Some("not durable"));
        assert_eq!(written.inequality(Peer::Tgtd(Store::RDWR_SYNC)), None);
        assert_eq!(written.inequality(Peer::Quoin), None);
        let read = select(&["seqread-1m".to_owned()]).unwrap()[0];
        assert_eq!(read.inequality(Peer::Tgtd(Store::RDWR)), Some("from the page cache"));
    }
}
