//! Which reads of hosts follow each other, and what to read ahead for them: a table of a few streams for each volume on each
//! thread, where a stream is the place where its next read should begin.
//!
//! Consider this example, with reads of 64 KiB:
//!
//! 1. A read at 0 may begin a stream. So may any read that goes on nowhere; the stream used longest ago makes way.
//! 2. A read at 64 KiB goes on there, and one at 128 KiB, its third: from now on it is a stream.
//! 3. It has read 192 KiB, so the 384 KiB behind it are read ahead; again when less than half of that is left. What is read
//!    ahead for nothing is at most twice what was wanted.
//!
//! A connection stays on its thread, and so do its streams: threads share nothing here.

use quoin_base::{ByteRange, VolumeId};
use quoin_world::{Mutex, Thread};
use rustc_hash::FxHashMap;

/// So many reads, each beginning where the last one ended, are a stream.
const READS: u64 = 3;
/// The most that is read ahead for a stream.
const LONGEST_BYTES: u64 = 2 << 20;
/// Of all that may be held, one stream has this part at most.
const PART_OF_BUDGET: u64 = 4;
/// A stream goes on though a read leaves out so much: another connection may have read it.
const SKIP_BYTES: u64 = 128 << 10;
/// Streams of a volume on a thread.
const STREAMS: usize = 8;
/// After so many other reads of its volume a stream counts as left, and makes way for others.
const LEFT_AFTER_READS: u64 = 256;
/// Volumes that a thread knows streams of.
const VOLUMES: usize = 1024;

#[derive(Clone, Copy)]
struct Stream {
    /// Where the next read should begin.
    next: u64,
    reads: u64,
    /// What they read.
    bytes: u64,
    /// What is being read ahead, or was, ends here.
    ahead: u64,
    /// The read of its volume that last went on with it.
    used: u64,
}

impl Stream {
    fn is_one(&self) -> bool {
        self.reads >= READS
    }

    fn goes_on_at(&self, offset: u64) -> bool {
        let skipped = offset.checked_sub(self.next);
        skipped.is_some_and(|skipped| skipped == 0 || (self.is_one() && skipped <= SKIP_BYTES))
    }

    /// What to read ahead now.
    fn wanted(&mut self, most_bytes: u64) -> Option<ByteRange> {
        let ahead_bytes = (2 * self.bytes).min(most_bytes);
        let from = self.ahead.max(self.next);
        let to = self.next.saturating_add(ahead_bytes);
        if !self.is_one() || from - self.next >= ahead_bytes.div_ceil(2) {
            return None;
        }
        self.ahead = to;
        Some(ByteRange::from(from..to))
    }
}

/// Those of one volume on one thread.
#[derive(Default)]
struct Table {
    streams: Vec<Stream>,
    reads: u64,
}

impl Table {
    fn note(&mut self, range: ByteRange, most_bytes: u64) -> Noted {
        self.reads += 1;
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.goes_on_at(range.offset)) else {
            self.begin(range);
            return Noted::default();
        };
        stream.next = range.end();
        stream.reads += 1;
        stream.bytes += range.len;
        stream.used = self.reads;
        Noted { is_stream: stream.is_one(), ahead: stream.wanted(most_bytes) }
    }

    fn begin(&mut self, range: ByteRange) {
        let begun = Stream { next: range.end(), reads: 1, bytes: range.len, ahead: 0, used: self.reads };
        if self.streams.len() < STREAMS {
            self.streams.push(begun);
            return;
        }
        let reads = self.reads;
        let is_kept = |stream: &Stream| stream.is_one() && reads - stream.used < LEFT_AFTER_READS;
        if let Some(last) = self.streams.iter_mut().min_by_key(|stream| (is_kept(stream), stream.used)) {
            *last = begun;
        }
    }
}

/// What is known of a read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    /// It goes on with a stream.
    pub is_stream: bool,
    /// What to read ahead for it.
    pub ahead: Option<ByteRange>,
}

pub(crate) struct Streams {
    /// Of each data thread; the last of all others.
    tables: Vec<Mutex<FxHashMap<VolumeId, Table>>>,
    /// The most to read ahead for a stream; 0: nothing is noted.
    most_bytes: u64,
}

impl Streams {
    /// Of so many data threads. `budget_bytes`: what may be held for all streams.
    pub(crate) fn new(data_threads: usize, budget_bytes: u64, block_bytes: u64) -> Self {
        let most_bytes = (budget_bytes / PART_OF_BUDGET).min(LONGEST_BYTES) / block_bytes * block_bytes;
        Self { tables: (0..=data_threads).map(|_| Mutex::default()).collect(), most_bytes }
    }

    /// Notes a read of a host. It is made once for each, before it is carried out.
    pub(crate) fn note(&self, thread: Option<Thread>, volume: VolumeId, range: ByteRange) -> Noted {
        if self.most_bytes == 0 || range.len == 0 {
            return Noted::default();
        }
        let others = self.tables.len() - 1;
        let table = match thread {
            Some(Thread::Data(thread)) => thread.min(others),
            _ => others,
        };
        let mut volumes = self.tables[table].lock();
        if volumes.len() >= VOLUMES && !volumes.contains_key(&volume) {
            // Most of them are idle or gone. Streams that are neither are found again within a few reads.
            volumes.clear();
        }
        volumes.entry(volume).or_default().note(range, self.most_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const MIB: u64 = 1 << 20;

    fn streams() -> impl FnMut(u64, u64) -> Noted {
        let streams = Streams::new(2, 64 * MIB, 8192);
        move |offset, len| streams.note(Some(Thread::Data(1)), VolumeId(1), ByteRange::new(offset, len))
    }

    #[test]
    fn what_is_read_ahead_grows_with_the_stream_to_its_limit_and_has_no_gaps() {
        let mut note = streams();
        let mut ahead = 0;
        for i in 0..256 {
            let noted = note(i * 64 * KIB, 64 * KIB);
            assert_eq!(noted.is_stream, i >= 2);
            let Some(range) = noted.ahead else { continue };
            assert!(range.offset == ahead || ahead == 0, "{range:?} after {ahead}");
            let end = (i + 1) * 64 * KIB;
            ahead = range.end();
            assert!(ahead - end <= (2 * end).min(2 * MIB));
        }
        assert!(ahead >= 256 * 64 * KIB + MIB, "{ahead}");
    }

    #[test]
    fn reads_here_and_there_are_no_stream_and_do_not_end_one() {
        let mut note = streams();
        for i in 0..1000u64 {
            let noted = note(i * 64 * KIB, 64 * KIB);
            assert_eq!(noted.is_stream, i >= 2, "{i}");
            for j in 0..u64::from(i > 2) * 20 {
                let other = note((1 << 40) + (i * 7919 + j * 104_729) % 100_000 * MIB, 8 * KIB);
                assert_eq!(other, Noted::default());
            }
        }
    }

    #[test]
    fn a_stream_that_is_left_makes_way() {
        let mut note = streams();
        for stream in 0..8 {
            for i in 0..4 {
                note((stream << 40) + i * 8 * KIB, 8 * KIB);
            }
        }
        for i in 0..300 {
            note((1 << 50) + i * MIB, 8 * KIB);
        }
        for i in 0..20 {
            assert_eq!(note((9 << 40) + i * 8 * KIB, 8 * KIB).is_stream, i >= 2);
            for j in 0..3 {
                note((1 << 51) + (3 * i + j) * MIB, 8 * KIB);
            }
        }
    }

    #[test]
    fn a_read_may_leave_something_out_but_not_go_back() {
        let mut note = streams();
        for i in 0..4 {
            note(i * 64 * KIB, 64 * KIB);
        }
        assert!(note(320 * KIB, 64 * KIB).is_stream);
        assert!(!note(0, 64 * KIB).is_stream && !note(320 * KIB, 64 * KIB).is_stream);
        assert!(!note(MIB, 64 * KIB).is_stream);
        assert!(note(384 * KIB, 64 * KIB).is_stream);
    }

    #[test]
    fn threads_and_volumes_have_streams_of_their_own() {
        let streams = Streams::new(2, 64 * MIB, 8192);
        let note = |thread, volume, i: u64| {
            streams.note(Some(Thread::Data(thread)), VolumeId(volume), ByteRange::new(i * 8192, 8192))
        };
        for i in 0..6 {
            assert_eq!(note(0, 1, i).is_stream, i >= 2);
            assert_eq!(note(1, 1, i).is_stream, i >= 2);
            assert_eq!(note(0, 2, i).is_stream, i >= 2);
        }
        let none = Streams::new(2, 0, 8192);
        (0..9).for_each(|i| assert_eq!(none.note(None, VolumeId(1), ByteRange::new(i, 1)), Noted::default()));
    }
}
