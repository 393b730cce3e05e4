//! Where transfers come from: a sweep over the working set, or the measured load; and what they carry.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::filler::Filler;
use crate::ledger::{Extent, Ledger};
use crate::load::Pattern;
use crate::stats::Latencies;
use quoin_initiator::{Io, Next, Rng, Source};

const MISMATCHES_SHOWN: usize = 10;

/// The outcome of checking data.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Verified {
    /// Blocks compared, during the run and after it.
    pub(crate) blocks: u64,
    pub(crate) mismatches: u64,
    /// The first few, told in full.
    pub(crate) examples: Vec<String>,
}

impl Verified {
    pub(crate) fn add(&mut self, other: &Verified) {
        self.blocks += other.blocks;
        self.mismatches += other.mismatches;
        self.examples.extend(other.examples.iter().take(MISMATCHES_SHOWN - self.examples.len()).cloned());
    }
}

/// What writes carry and reads must return.
pub(crate) struct Contents {
    pub(crate) ledger: Option<Ledger>,
    pub(crate) filler: Filler,
    pub(crate) verified: Verified,
    pub(crate) rng: Rng,
}

impl Contents {
    /// What a write carries; stamped if it is to be verified.
    fn fill(&mut self, io: Io, data: &mut [u8]) {
        match &mut self.ledger {
            Some(ledger) => ledger.stamp(io.offset, data),
            None => self.filler.fill(&mut self.rng, data),
        }
    }

    fn reserve(&mut self, io: Io) -> bool {
        self.ledger.as_mut().is_none_or(|ledger| ledger.reserve(io.offset, io.len as usize))
    }

    fn completed(&mut self, io: Io, data: &[u8]) {
        let Some(ledger) = &mut self.ledger else { return };
        ledger.release(io.offset, io.len as usize);
        if !io.write {
            match ledger.check(io.offset, data) {
                Ok(blocks) => self.verified.blocks += blocks,
                Err(why) => {
                    self.verified.mismatches += 1;
                    if self.verified.examples.len() < MISMATCHES_SHOWN {
                        self.verified.examples.push(why);
                    }
                }
            }
        }
    }
}

/// One pass over an extent, in order.
pub(crate) struct Sweep<'a> {
    pub(crate) contents: &'a mut Contents,
    pub(crate) write: bool,
    pub(crate) at: u64,
    pub(crate) end: u64,
    pub(crate) io_bytes: u32,
}

impl Source for Sweep<'_> {
    fn wants_data(&self) -> bool {
        self.contents.ledger.is_some()
    }

    fn next(&mut self, _: Instant) -> Next {
        if self.at == self.end {
            return Next::Done;
        }
        let len = (self.end - self.at).min(u64::from(self.io_bytes)) as u32;
        let io = Io { write: self.write, offset: self.at, len };
        if !self.contents.reserve(io) {
            return Next::Wait;
        }
        self.at += u64::from(len);
        Next::Start(io)
    }

    fn fill(&mut self, io: Io, data: &mut [u8]) {
        self.contents.fill(io, data);
    }

    fn completed(&mut self, io: Io, data: &[u8], _: Instant, _: Instant) -> Result<()> {
        self.contents.completed(io, data);
        Ok(())
    }
}

/// The measured load.
pub(crate) struct Run<'a> {
    pub(crate) contents: &'a mut Contents,
    pub(crate) extent: Extent,
    pub(crate) pattern: Pattern,
    pub(crate) mix: u64,
    pub(crate) cursor: u64,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    /// When transfers are due; as soon as others end if there is none.
    pub(crate) pace: Option<Pace>,
    pub(crate) latencies: &'a mut Latencies,
}

/// Transfers at equal distances. One that is started late is counted from when it was due.
pub(crate) struct Pace {
    pub(crate) next: Instant,
    pub(crate) every: Duration,
}

impl Pace {
    /// The time of a transfer that is due; the next one is due later.
    fn take(&mut self) -> Instant {
        let due = self.next;
        self.next += self.every;
        due
    }
}

impl Run<'_> {
    fn pick(&mut self) -> Io {
        let rng = &mut self.contents.rng;
        let (random, write) = match self.pattern {
            Pattern::Randread => (true, false),
            Pattern::Randwrite => (true, true),
            Pattern::Randrw => (true, rng.below(100) >= self.mix),
            Pattern::Read => (false, false),
            Pattern::Write => (false, true),
        };
        let block = if random { rng.below(self.extent.blocks) } else { self.cursor % self.extent.blocks };
        let len = self.extent.block_bytes;
        Io { write, offset: self.extent.start + block * u64::from(len), len }
    }
}

impl Source for Run<'_> {
    fn wants_data(&self) -> bool {
        self.contents.ledger.is_some()
    }

    fn next(&mut self, now: Instant) -> Next {
        if now >= self.until {
            return Next::Done;
        }
        if let Some(pace) = &self.pace
            && now < pace.next
        {
            return Next::NotBefore(pace.next.min(self.until));
        }
        for _ in 0..64 {
            let io = self.pick();
            if self.contents.reserve(io) {
                self.cursor += 1;
                return self.pace.as_mut().map_or(Next::Start(io), |pace| Next::Overdue(io, pace.take()));
            }
        }
        Next::Wait
    }

    fn fill(&mut self, io: Io, data: &mut [u8]) {
        self.contents.fill(io, data);
    }

    fn completed(&mut self, io: Io, data: &[u8], started: Instant, now: Instant) -> Result<()> {
        self.contents.completed(io, data);
        if now >= self.from && now < self.until {
            self.latencies.record(io.write, now - started);
        }
        Ok(())
    }
}
