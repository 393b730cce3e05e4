//! The rows that are compared: the workload of each, who takes part, and what the bare drive does beside it.
//!
//! Only stores of equal durability take part: where a row writes, those that flush every write. Where it reads from the
//! drive, those that read past the page cache.

use crate::drive::{Access, Flush};
use crate::files::Probe;
use crate::load::Pattern;
use crate::tgtd::Store;

/// Share of reads in mixed rows, in percent.
pub(crate) const MIX: u64 = 70;
/// Transfers from this size on are told in bytes.
pub(crate) const LARGE_BYTES: u64 = 64 << 10;
/// Threads of a probe at most: enough to tell a slow file from a fast one.
const PROBE_DEPTH_MOST: usize = 8;

/// Where a row's data is when the measurement begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// Small and just read: in memory, if the target keeps anything there.
    Cached,
    /// Large, on the drive.
    Drive,
}

/// What must have happened to a target's data before the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It was written, in whatever order.
    Written,
    /// It was written in sequence, and at most overwritten in sequence.
    InOrder,
    /// It was written in sequence and then overwritten at random for a time.
    Aged,
    /// So much was overwritten that the array has used each of its segments more than once.
    Wrapped,
}

/// What is done in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// The pattern, over iSCSI.
    Load,
    /// The pattern, over iSCSI, for long: what comes early is compared with what comes late.
    Long,
    /// The pattern, over iSCSI, once alone and once beside a stream of large writes, which are a backup.
    Beside,
    /// The pattern, over NBD.
    Nbd,
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Quoin,
    /// Quoin on a pool that was just made and filled.
    Fresh,
    Tgtd(Store),
    /// Its file plugin, each write flushed.
    Nbdkit,
    /// The drive without a target.
    Bare,
}

impl Target {
    pub(crate) fn name(&self) -> String {
        match self {
            Target::Quoin => "Quoin".to_owned(),
            Target::Fresh => "Quoin, fresh pool".to_owned(),
            Target::Tgtd(store) => format!("tgtd {}", store.name()),
            Target::Nbdkit => "nbdkit file, each write flushed".to_owned(),
            Target::Bare => "bare drive".to_owned(),
        }
    }

    pub(crate) fn is_peer(&self) -> bool {
        matches!(self, Target::Tgtd(_) | Target::Nbdkit)
    }
}

/// One workload for all targets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) work: Work,
    pub(crate) pattern: Pattern,
    pub(crate) io_bytes: u64,
    /// Transfers in flight, per session.
    pub(crate) depth: usize,
    pub(crate) sessions: u16,
    pub(crate) data: Data,
    pub(crate) before: Before,
    /// Transfers of the bare drive: as large and as many, if not said otherwise.
    bare: Option<(u64, usize)>,
    /// The bare drive is accessed at random, whatever the pattern.
    is_bare_scattered: bool,
    targets: &'static [Target],
}

const CACHED: &[Target] = &[Target::Quoin, Target::Tgtd(Store::RDWR), Target::Tgtd(Store::AIO)];
const READ: &[Target] = &[Target::Quoin, Target::Tgtd(Store::AIO), Target::Tgtd(Store::RDWR_DIRECT)];
const WRITTEN: &[Target] =
    &[Target::Quoin, Target::Tgtd(Store::RDWR_SYNC), Target::Tgtd(Store::RDWR_SYNC_DIRECT)];
const LONG: &[Target] =
    &[Target::Fresh, Target::Tgtd(Store::RDWR_SYNC), Target::Tgtd(Store::RDWR_SYNC_DIRECT)];
const WRAPPED: &[Target] =
    &[Target::Quoin, Target::Fresh, Target::Tgtd(Store::RDWR_SYNC), Target::Tgtd(Store::RDWR_SYNC_DIRECT)];
const NBD: &[Target] = &[Target::Quoin, Target::Nbdkit];

const fn row(
    id: &'static str,
    title: &'static str,
    pattern: Pattern,
    (kib, depth): (u64, usize),
    targets: &'static [Target],
) -> Row {
    Row {
        id,
        title,
        work: Work::Load,
        pattern,
        io_bytes: kib << 10,
        depth,
        sessions: 1,
        data: Data::Drive,
        before: Before::Written,
        bare: None,
        is_bare_scattered: false,
        targets,
    }
}

impl Row {
    const fn cached(self) -> Row {
        Row { data: Data::Cached, ..self }
    }

    const fn after(self, before: Before) -> Row {
        Row { before, ..self }
    }

    const fn by(self, work: Work) -> Row {
        Row { work, ..self }
    }

    const fn sessions(self, sessions: u16) -> Row {
        Row { sessions, ..self }
    }

    const fn beside_bare(self, kib: u64, depth: usize) -> Row {
        Row { bare: Some((kib << 10, depth)), ..self }
    }

    /// The bare drive reads as many blocks of 8 KiB, at random: what an aged volume asks of a drive.
    const fn beside_scattered(self) -> Row {
        Row { is_bare_scattered: true, ..self.beside_bare(8, 128) }
    }
}

/// All rows, in the order in which each round goes through them: what is read in sequence comes before what is written at
/// random, so that little has to be written again between two rows.
pub(crate) const ROWS: [Row; 18] = {
    use Pattern::{Randread, Randrw, Randwrite, Read, Write};
    [
        row("cached-read", "8 KiB random read from cache, depth 32", Randread, (8, 32), CACHED).cached(),
        row("seqread-64k", "64 KiB sequential read, depth 16", Read, (64, 16), READ).after(Before::InOrder),
        row("seqread-1m", "1 MiB sequential read, depth 8", Read, (1024, 8), READ).after(Before::InOrder),
        row("seqread-1m-d1", "1 MiB sequential read, one at a time; drive: depth 8", Read, (1024, 1), READ)
            .after(Before::InOrder)
            .beside_bare(1024, 8),
        row("seqwrite-64k", "64 KiB sequential durable write, depth 16", Write, (64, 16), WRITTEN),
        row("seqwrite-1m", "1 MiB sequential durable write, depth 8", Write, (1024, 8), WRITTEN),
        row("backup", "8 KiB durable log writes beside a backup of 1 MiB writes", Write, (8, 1), WRITTEN)
            .by(Work::Beside),
        row("drive-read", "8 KiB random read from the drive, depth 32", Randread, (8, 32), READ),
        row("write-d1", "8 KiB random durable write, depth 1", Randwrite, (8, 1), WRITTEN),
        row("write-d32", "8 KiB random durable write, depth 32", Randwrite, (8, 32), WRITTEN),
        // As many bytes in flight in pieces of 80 KiB.
        row(
            "write-d128",
            "8 KiB random durable write, depth 128; drive: 80 KiB",
            Randwrite,
            (8, 128),
            WRITTEN,
        )
        .beside_bare(80, 12),
        row("mix-d32", "8 KiB random, 70 % reads, durable writes, depth 32", Randrw, (8, 32), WRITTEN),
        row("nbd-write-d1", "8 KiB random durable write over NBD, depth 1", Randwrite, (8, 1), NBD)
            .by(Work::Nbd),
        row("nbd-mix-d32", "8 KiB random over NBD, 70 % reads, depth 32", Randrw, (8, 32), NBD).by(Work::Nbd),
        row("sessions", "8 KiB random durable write, 16 sessions, depth 8 each", Randwrite, (8, 8), WRAPPED)
            .sessions(16)
            .after(Before::Wrapped),
        row("long", "8 KiB random durable write, depth 32, past the wrap", Randwrite, (8, 32), LONG)
            .by(Work::Long),
        row(
            "aged-read-64k",
            "64 KiB sequential read of an aged volume, depth 16; drive: 8 KiB at random",
            Read,
            (64, 16),
            READ,
        )
        .after(Before::Aged)
        .beside_scattered(),
        row(
            "aged-read-1m",
            "1 MiB sequential read of an aged volume, depth 8; drive: 8 KiB at random",
            Read,
            (1024, 8),
            READ,
        )
        .after(Before::Aged)
        .beside_scattered(),
    ]
};

/// The rows of the quick look, which has no peers.
pub(crate) const QUICK: [&str; 4] = ["cached-read", "seqread-1m", "seqwrite-1m", "write-d32"];

impl Row {
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.pattern, Pattern::Randread | Pattern::Read)
    }

    pub(crate) fn is_random(&self) -> bool {
        !matches!(self.pattern, Pattern::Read | Pattern::Write)
    }

    /// Whether its rate is told in bytes rather than in transfers.
    pub(crate) fn is_of_bytes(&self) -> bool {
        self.io_bytes >= LARGE_BYTES
    }

    /// All who are measured, the bare drive last.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        self.targets.iter().copied().chain([Target::Bare])
    }

    /// Which of them is Quoin for the comparison.
    pub(crate) fn subject(&self) -> Target {
        self.targets[0]
    }

    /// What the bare drive does in this row.
    pub(crate) fn bare(&self) -> Access {
        let (io_bytes, depth) = self.bare.unwrap_or((self.io_bytes, self.depth * usize::from(self.sessions)));
        Access {
            write: self.writes(),
            random: self.is_random() || self.is_bare_scattered,
            mix: (self.pattern == Pattern::Randrw).then_some(MIX),
            io_bytes,
            depth,
            flush: if self.writes() { Flush::Each } else { Flush::None },
        }
    }

    /// What is done for a moment on each file before it is used.
    pub(crate) fn probe(&self) -> Probe {
        Probe {
            write: self.writes(),
            random: self.is_random(),
            io_bytes: self.io_bytes,
            depth: (self.depth * usize::from(self.sessions)).min(PROBE_DEPTH_MOST),
        }
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
    if rows.is_empty() && !is_wanted(IDLE, words) {
        Err(format!("no such row; there are {}, {IDLE}", ROWS.map(|row| row.id).join(", ")))
    } else {
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_quoin_first_and_a_peer_of_equal_durability() {
        for row in ROWS {
            assert!(matches!(row.subject(), Target::Quoin | Target::Fresh), "{}", row.id);
            assert!(row.targets().any(|target| target.is_peer()), "{}", row.id);
            assert_eq!(row.targets().last(), Some(Target::Bare));
            for target in row.targets() {
                if let Target::Tgtd(store) = target {
                    assert!(store.is_durable() || !row.writes(), "{}: {}", row.id, store.name());
                    let from_page_cache = store == Store::RDWR && row.data == Data::Drive;
                    assert!(!from_page_cache, "{}: {}", row.id, store.name());
                }
            }
            assert_eq!(row.bare().flush == Flush::Each, row.writes());
        }
    }

    #[test]
    fn beside_aged_volumes_the_drive_reads_what_they_ask_of_it() {
        let aged = ROWS.iter().filter(|row| row.before == Before::Aged);
        for bare in aged.map(Row::bare) {
            assert!(bare.random && !bare.write && bare.io_bytes == 8 << 10 && bare.depth == 128);
        }
        assert!(ROWS.iter().filter(|row| row.id.starts_with("seq")).all(|row| !row.bare().random));
    }

    #[test]
    fn rows_are_chosen_by_parts_of_their_names() {
        let ids = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            select(&words).map(|rows| rows.iter().map(|row| row.id).collect::<Vec<_>>())
        };
        assert_eq!(ids(&[]).unwrap().len(), ROWS.len());
        assert_eq!(ids(&["aged"]).unwrap(), ["aged-read-64k", "aged-read-1m"]);
        assert_eq!(ids(&[IDLE]).unwrap(), [""; 0]);
        assert!(ids(&["nonsense"]).unwrap_err().contains("write-d1"));
        assert!(QUICK.iter().all(|id| ROWS.iter().any(|row| row.id == *id)));
    }
}
