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
    /// From several initiators to as many volumes, compared with one of them alone.
    pub(crate) several: bool,
    /// Seconds that Quoin needs in this row so that destage and checkpoints take part as they do in the long run.
    pub(crate) least_seconds: f64,
    /// How many times its journal must be gone through meanwhile.
    pub(crate) least_wraps: u64,
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
    let (several, least_seconds, least_wraps) = (false, 0.0, 0);
    Row { id, title, pattern, io_bytes: kib << 10, depth, data, several, least_seconds, least_wraps, stores }
}

impl Row {
    const fn several(self) -> Row {
        Row { several: true, ..self }
    }

    const fn for_at_least(self, least_seconds: f64, least_wraps: u64) -> Row {
        Row { least_seconds, least_wraps, ..self }
    }
}

/// Share of reads in the mixed row, in percent.
pub(crate) const MIX: u64 = 70;

/// All rows, in the order of the report. Each round goes through them in this order: what the sequential reads find was
/// written in sequence, but for the aged ones.
pub(crate) const ROWS: [Row; 15] = {
    use Data::{Cached, Drive};
    use Pattern::{Randread, Randrw, Randwrite, Read, Write};
    [
        row("cached-read-d32", "8 KiB random read from cache, depth 32", Randread, (8, 32), Cached, CACHED),
        row("cached-read-d1", "8 KiB random read from cache, depth 1", Randread, (8, 1), Cached, CACHED),
        row("drive-read-d32", "8 KiB random read from the drive, depth 32", Randread, (8, 32), Drive, DIRECT),
        row("drive-read-d1", "8 KiB random read from the drive, depth 1", Randread, (8, 1), Drive, DIRECT),
        row("seqread-64k", "64 KiB sequential read, depth 16", Read, (64, 16), Drive, SEQUENTIAL),
        row("seqread-1m", "1 MiB sequential read, depth 8", Read, (1024, 8), Drive, SEQUENTIAL),
        row("write-d32", "8 KiB random durable write, depth 32", Randwrite, (8, 32), Drive, WRITTEN)
            .for_at_least(60.0, 3),
        row("write-d1", "8 KiB random durable write, depth 1", Randwrite, (8, 1), Drive, WRITTEN)
            .for_at_least(36.0, 0),
        row("mix-d32", "8 KiB random, 70 % reads, durable writes, depth 32", Randrw, (8, 32), Drive, WRITTEN)
            .for_at_least(15.0, 0),
        row(
            "aged-read-64k",
            "64 KiB sequential read of what was overwritten at random, depth 16",
            Read,
            (64, 16),
            Drive,
            SEQUENTIAL,
        ),
        row(
            "aged-read-1m",
            "1 MiB sequential read of what was overwritten at random, depth 8",
            Read,
            (1024, 8),
            Drive,
            SEQUENTIAL,
        ),
        row("seqwrite-64k", "64 KiB sequential durable write, depth 16", Write, (64, 16), Drive, WRITTEN)
            .for_at_least(10.0, 0),
        row("seqwrite-1m", "1 MiB sequential durable write, depth 8", Write, (1024, 8), Drive, WRITTEN)
            .for_at_least(10.0, 0),
        row(
            "several-read",
            "8 KiB random read, 4 initiators on 4 volumes, depth 32 each",
            Randread,
            (8, 32),
            Drive,
            &[],
        )
        .several(),
        row(
            "several-write",
            "8 KiB random durable write, 4 initiators on 4 volumes, depth 32 each",
            Randwrite,
            (8, 32),
            Drive,
            &[],
        )
        .several()
        .for_at_least(12.0, 0),
    ]
};

/// Who is measured in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Quoin,
    /// Quoin with one initiator on one volume, where the row has several.
    Alone,
    Tgtd(Store),
}

impl Peer {
    pub(crate) fn name(&self) -> String {
        match self {
            Peer::Quoin => "Quoin".to_owned(),
            Peer::Alone => "Quoin, one alone".to_owned(),
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
    /// Seconds of load before the measurement. What writes first touches memory that its process never had, which costs
    /// a virtual machine more than the write.
    pub(crate) fn warmup_seconds(&self) -> f64 {
        if self.writes() { 6.0 } else { 1.0 }
    }

    pub(crate) fn writes(&self) -> bool {
        !matches!(self.pattern, Pattern::Randread | Pattern::Read)
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = Peer> {
        let alone = self.several.then_some(Peer::Alone);
        std::iter::once(Peer::Quoin).chain(alone).chain(self.stores.iter().map(|&store| Peer::Tgtd(store)))
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
        if self.several {
            return Vec::new();
        }
        let drive =
            flushes.iter().map(|&flush| Limit::Drive(Access { write, random, mix, io_bytes, depth, flush }));
        // A mix is mostly reads: its echo is shaped like one.
        let echo = Limit::Echo(Exchange::of(write && mix.is_none(), io_bytes, depth));
        drive.filter(|_| self.data == Data::Drive).chain([echo]).collect()
    }
}

/// The row of an array that nobody asks for anything, which is no workload.
pub(crate) const IDLE: &str = "idle";

/// Whether a row is meant by one of the words; any is if there are none.
pub(crate) fn is_wanted(id: &str, words: &[String]) -> bool {
    words.is_empty() || words.iter().any(|word| id.contains(word.as_str()))
}

/// The rows whose ids contain one of the words; all if there are none.
pub(crate) fn select(words: &[String]) -> Result<Vec<Row>, String> {
    let rows: Vec<Row> = ROWS.into_iter().filter(|row| is_wanted(row.id, words)).collect();
    match rows.is_empty() && !is_wanted(IDLE, words) {
        true => Err(format!("no such row; there are {}, {IDLE}", ROWS.map(|row| row.id).join(", "))),
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
            assert!(row.several || row.limits().len() > usize::from(row.data == Data::Drive), "{}", row.id);
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
