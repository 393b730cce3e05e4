//! How much of what is destaged is packed: all of it, unless hosts wait for that.
//!
//! While writers are slowed down and destage waits for its blocks to be packed rather than for drives, less and less is
//! packed, until drives are what it waits for. What is stored plain then can be packed later.

use quoin_world::Nanos;
use std::time::Duration;

/// Parts of what is to be packed.
const PARTS: u32 = 16;

/// How much is packed now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Of [`PARTS`] chunks so many are packed.
    share: u32,
    /// What is owed of the next chunk.
    owed: u32,
    /// When the last batch was composed.
    composed_at: Nanos,
    /// When there was no time for all of it last.
    lacked_at: Option<Nanos>,
}

/// What was stored plain is packed when there was time for all that came since, for so long.
const QUIET: Duration = Duration::from_secs(5);

impl Effort {
    /// All is packed, from now on.
    pub(super) fn new(now: Nanos) -> Self {
        Self { share: PARTS, owed: 0, composed_at: now, lacked_at: None }
    }

    /// A batch is composed now, and destage waited for that so long. `is_slowed`: writers wait for room.
    pub(super) fn composed(&mut self, now: Nanos, waited: Duration, is_slowed: bool) {
        let took = now.since(std::mem::replace(&mut self.composed_at, now));
        self.note(is_slowed, waited, took);
        if self.share < PARTS {
            self.lacked_at = Some(now);
        }
    }

    /// Whether there has been time for all of it lately.
    pub(super) fn has_time(&self, now: Nanos) -> bool {
        self.lacked_at.is_none_or(|at| now.since(at) >= QUIET)
    }

    /// Takes over what a batch took in all, and for how much of that destage waited for it to be composed.
    fn note(&mut self, is_slowed: bool, waited: Duration, took: Duration) {
        // What waits for a processor a fifth of the time would be done a fifth sooner.
        if is_slowed && waited * 5 > took {
            self.share -= self.share.div_ceil(4);
        } else {
            self.share = (self.share + 1).min(PARTS);
        }
    }

    /// Whether less than half is packed.
    pub(super) fn is_hasty(&self) -> bool {
        self.share < PARTS / 2
    }

    /// Whether the next chunk is to be packed.
    pub(super) fn packs(&mut self) -> bool {
        self.owed += self.share;
        let packs = self.owed >= PARTS;
        if packs {
            self.owed -= PARTS;
        }
        packs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn packed_of(effort: &mut Effort, chunks: u32) -> u32 {
        (0..chunks).map(|_| u32::from(effort.packs())).sum()
    }

    #[test]
    fn all_is_packed_until_hosts_wait_for_it() {
        let mut effort = Effort::new(Nanos(0));
        assert_eq!(packed_of(&mut effort, 100), 100);
        // Drives are what it waits for, or hosts do not wait.
        effort.note(true, MS, 10 * MS);
        effort.note(false, 9 * MS, 10 * MS);
        assert_eq!(packed_of(&mut effort, 100), 100);
        effort.note(true, 9 * MS, 10 * MS);
        assert_eq!(packed_of(&mut effort, 160), 120);
        (0..10).for_each(|_| effort.note(true, 9 * MS, 10 * MS));
        assert_eq!(packed_of(&mut effort, 100), 0);
        // It comes back slowly.
        effort.note(false, MS, 10 * MS);
        assert_eq!(packed_of(&mut effort, 160), 10);
        (0..PARTS).for_each(|_| effort.note(true, MS, 10 * MS));
        assert_eq!(packed_of(&mut effort, 100), 100);
    }

    #[test]
    fn what_was_not_packed_waits_until_there_was_time_for_a_while() {
        let at = |ms: u64| Nanos(ms * 1_000_000);
        let mut effort = Effort::new(at(0));
        effort.composed(at(10), MS, true);
        assert!(effort.has_time(at(10)));
        effort.composed(at(20), 9 * MS, true);
        assert!(!effort.has_time(at(20)) && !effort.has_time(at(5019)) && effort.has_time(at(5020)));
        // Less than all of the next one was packed, too.
        effort.composed(at(30), MS, false);
        assert!(!effort.has_time(at(5029)));
    }
}
