//! Volumes of which what they have is reduced on request, and those of which that ended.
//!
//! The pool does the work and forgets it when it is closed. Here is what it has said of it.
//!
//! Invariants:
//! 1. A volume is listed once: what is begun again takes the place of what ended.
//! 2. At most [`ENDED_KEPT`] that ended stay listed.
//! 3. What ended stays as it ended, until it is begun again.

use crate::progress::Progress;
use quoin_base::VolumeId;
use quoin_pool::{Pool, Reduction};
use quoin_world::Nanos;
use std::collections::BTreeMap;

/// What the pool counts in.
const BLOCK_BYTES: u64 = 8192;
/// The number of those that ended and are still listed.
const ENDED_KEPT: usize = 32;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Cancelled,
    /// The pool was closed meanwhile.
    Interrupted,
}

/// Its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) outcome: Outcome,
    pub(crate) at_ms: u64,
}

/// The reduction of a volume.
#[derive(Clone)]
pub(crate) struct Begun {
    started_ms: u64,
    /// As the pool said last.
    found: Reduction,
    progress: Progress,
    end: Option<End>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Reductions(BTreeMap<VolumeId, Begun>);

impl Begun {
    fn new(found: Reduction, started_ms: u64) -> Self {
        Self { started_ms, found, progress: Progress::of(0), end: None }
    }

    /// When it was begun, in milliseconds since the Unix epoch.
    pub(crate) fn started_ms(&self) -> u64 {
        self.started_ms
    }

    /// Its end, if it has ended.
    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// How fast it goes.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What was looked at.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.found.met_blocks * BLOCK_BYTES
    }

    /// What there is to look at, as far as that is known.
    pub(crate) fn total_bytes(&self) -> u64 {
        let Reduction { met_blocks, total_blocks, is_done, .. } = self.found;
        let total = if is_done { met_blocks } else { total_blocks.max(met_blocks) };
        total * BLOCK_BYTES
    }

    /// What was looked at, in percent.
    pub(crate) fn percent(&self) -> f64 {
        match self.total_bytes() {
            0 if self.found.is_done => 100.0,
            0 => 0.0,
            total => self.done_bytes() as f64 * 100.0 / total as f64,
        }
    }

    /// Space that came free, in bytes.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.found.saved_bytes
    }

    /// Whether some of it could not be reduced, and could be later.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.found.is_incomplete
    }

    /// What came of it, for the list of jobs; nothing until it has ended.
    pub(crate) fn told_briefly(&self) -> String {
        match self.end {
            None => String::new(),
            Some(_) if self.is_incomplete() => {
                format!(", {} bytes saved, a part left as it was", self.saved_bytes())
            }
            Some(_) => format!(", {} bytes saved", self.saved_bytes()),
        }
    }

    /// What came of it, for events.
    pub(crate) fn told(&self) -> String {
        let Reduction { met_blocks, compressed_blocks, deduplicated_blocks, saved_bytes, .. } = self.found;
        let rest = if self.is_incomplete() {
            "; a part was left as it was, since it could not be read or there was no room to move it"
        } else {
            ""
        };
        format!(
            "of {met_blocks} blocks {compressed_blocks} became shorter and {deduplicated_blocks} have the same content \
             as others, {saved_bytes} bytes saved{rest}"
        )
    }
}

impl Reductions {
    /// What is listed of a volume.
    pub(crate) fn of(&self, volume: VolumeId) -> Option<&Begun> {
        self.0.get(&volume)
    }

    /// Whether that of a volume is under way.
    pub(crate) fn runs(&self, volume: VolumeId) -> bool {
        self.of(volume).is_some_and(|begun| begun.end.is_none())
    }

    /// All that are listed.
    pub(crate) fn list(&self) -> impl Iterator<Item = (VolumeId, &Begun)> {
        self.0.iter().map(|(volume, begun)| (*volume, begun))
    }

    /// The pool began with a volume.
    pub(crate) fn begin(&mut self, pool: &Pool, volume: VolumeId, now_ms: u64) {
        let found = pool.reduction(volume).unwrap_or_default();
        self.0.insert(volume, Begun::new(found, now_ms));
    }

    /// Asks the pool how far it is. Returns those that ended since.
    pub(crate) fn look(&mut self, pool: &Pool, now_ms: u64) -> Vec<(VolumeId, Begun)> {
        let mut ended = Vec::new();
        self.0.retain(|volume, begun| {
            if begun.end.is_some() {
                return true;
            }
            let outcome = match pool.reduction(*volume) {
                Some(found) => {
                    begun.found = found;
                    found.is_done.then_some(Outcome::Done)
                }
                None if pool.volume_stats(*volume).is_none() => return false,
                None => Some(Outcome::Interrupted),
            };
            if let Some(outcome) = outcome {
                begun.end = Some(End { outcome, at_ms: now_ms });
                ended.push((*volume, begun.clone()));
            }
            true
        });
        ended
    }

    /// Reckons how fast those under way go.
    pub(crate) fn sample(&mut self, now: Nanos) {
        for begun in self.0.values_mut().filter(|begun| begun.end.is_none()) {
            let left = begun.total_bytes() - begun.done_bytes();
            begun.progress.look(now, left);
        }
    }

    /// Has the pool stop with a volume. `None` if it had ended.
    pub(crate) fn cancel(&mut self, pool: &Pool, volume: VolumeId, now_ms: u64) -> Option<Begun> {
        let begun = self.0.get_mut(&volume).filter(|begun| begun.end.is_none())?;
        let was_under_way = pool.stop_reducing(volume);
        let outcome = if was_under_way { Outcome::Cancelled } else { Outcome::Done };
        begun.end = Some(End { outcome, at_ms: now_ms });
        Some(begun.clone())
    }

    /// Forgets those of volumes that are no longer there, and the oldest of those that ended, if they are too many.
    pub(crate) fn forget_some(&mut self, is_there: impl Fn(VolumeId) -> bool) {
        self.0.retain(|volume, _| is_there(*volume));
        let ended = self.0.iter().filter_map(|(volume, begun)| Some((begun.end?.at_ms, *volume)));
        let mut ended: Vec<_> = ended.collect();
        ended.sort_unstable();
        for (_, volume) in ended.iter().take(ended.len().saturating_sub(ENDED_KEPT)) {
            self.0.remove(volume);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(found: Reduction) -> Begun {
        Begun::new(found, 1)
    }

    #[test]
    fn how_far_it_is_is_told_in_bytes_also_if_more_is_met_than_was_expected() {
        let found = Reduction { total_blocks: 8, met_blocks: 2, saved_bytes: 4096, ..Reduction::default() };
        let first = begun(found);
        assert_eq!((first.percent(), first.done_bytes(), first.total_bytes()), (25.0, 16_384, 65_536));
        assert_eq!(first.told_briefly(), "");
        let more = begun(Reduction { met_blocks: 9, ..found });
        assert_eq!((more.percent(), more.total_bytes()), (100.0, 9 * BLOCK_BYTES));
        let end = Some(End { outcome: Outcome::Done, at_ms: 2 });
        let done = Begun { end, ..begun(Reduction { is_done: true, is_incomplete: true, ..found }) };
        assert_eq!((done.percent(), done.total_bytes()), (100.0, 16_384));
        assert_eq!(done.told_briefly(), ", 4096 bytes saved, a part left as it was");
        assert!(done.told().contains("4096 bytes saved; a part was left as it was"), "{}", done.told());
        let nothing = Reduction { is_done: true, ..Reduction::default() };
        assert_eq!((begun(Reduction::default()).percent(), begun(nothing).percent()), (0.0, 100.0));
    }

    #[test]
    fn the_oldest_that_ended_are_forgotten_and_those_of_volumes_that_are_gone() {
        let mut reductions = Reductions::default();
        for number in 0..40 {
            let end = (number != 3).then_some(End { outcome: Outcome::Done, at_ms: 100 - u64::from(number) });
            reductions.0.insert(VolumeId(number), Begun { end, ..begun(Reduction::default()) });
        }
        reductions.forget_some(|volume| volume.0 < 39);
        let left: Vec<_> = reductions.list().map(|(volume, _)| volume.0).collect();
        // Number 38 ended first. Number 3 is under way.
        assert_eq!(left, (0..33).collect::<Vec<_>>());
        assert!(reductions.runs(VolumeId(3)) && !reductions.runs(VolumeId(4)));
    }
}
