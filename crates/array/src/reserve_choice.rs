//! Which snapshots a reserve deletes: the oldest whose deletion frees space according to the pool's report.
//!
//! 1. Nothing is chosen that frees nothing. Snapshots that hold space only together are chosen together, once none frees
//!    space alone.
//! 2. A set of a group is chosen as a whole or not at all.
//! 3. The newest snapshot of a deleted volume is never chosen: it may be the only copy of the content of that volume.
//!
//! A choice deletes nothing. It treats the snapshots that it chose before as deleted, and so predicts what would
//! happen.

use crate::origin::{Moment, moment_of};
use quoin_base::{LayerId, SliceId, VolumeId};
use quoin_pool::Pool;
use quoin_volume::{OriginKind, Volume};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Snapshots that are deleted together: each inner list is one snapshot, or a set.
pub(crate) struct Victim {
    pub(crate) moments: Vec<Vec<Arc<Volume>>>,
    /// When the oldest was taken.
    pub(crate) taken_ms: u64,
    /// The least space that their deletion frees.
    pub(crate) freed_bytes: u64,
    /// How much the snapshots of the reserve hold afterwards.
    pub(crate) held_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It may free space.
    Ready,
    /// It frees nothing alone, as things are.
    Idle,
    Chosen,
}

struct Candidate {
    snapshots: Vec<Arc<Volume>>,
    taken_ms: u64,
    families: BTreeSet<(SliceId, LayerId)>,
    state: State,
}

/// A snapshot, its source, and when it was taken.
struct Known {
    id: VolumeId,
    source: VolumeId,
    taken_ms: u64,
}

/// The snapshots and sets that a reserve deletes, one after the other.
pub(crate) struct Choice<'a> {
    pool: &'a Pool,
    /// The snapshots of the reserve.
    own: BTreeSet<VolumeId>,
    /// Those that may be deleted, oldest first.
    candidates: Vec<Candidate>,
    known: Vec<Known>,
    volumes: BTreeSet<VolumeId>,
    /// The snapshots chosen so far.
    gone: BTreeSet<VolumeId>,
    /// The space freed by deleting all snapshots of the reserve.
    all_bytes: u64,
    /// The space freed by deleting the chosen ones.
    freed_bytes: u64,
    held_bytes: u64,
}

impl<'a> Choice<'a> {
    /// The choice among `volumes`, all there are, for the reserve that limits the snapshots `own`. `may_be_deleted` tells
    /// of a snapshot whether it may be chosen.
    pub(crate) fn new(
        pool: &'a Pool,
        own: BTreeSet<VolumeId>,
        all: Vec<Arc<Volume>>,
        may_be_deleted: impl Fn(&Volume) -> bool,
    ) -> Self {
        let (mut known, mut volumes) = (Vec::new(), BTreeSet::new());
        let mut moments: BTreeMap<Moment, Vec<Arc<Volume>>> = BTreeMap::new();
        for volume in all {
            let id = volume.id();
            volumes.insert(id);
            let Some(origin) = volume.origin().filter(|origin| origin.kind == OriginKind::Snapshot) else {
                continue;
            };
            known.push(Known { id, source: origin.source, taken_ms: origin.taken_ms });
            if let Some(moment) = moment_of(&volume) {
                moments.entry(moment).or_default().push(volume);
            }
        }
        let families = pool.families();
        let concerns = |snapshots: &Vec<Arc<Volume>>| snapshots.iter().any(|s| own.contains(&s.id()));
        let may_go = |snapshots: &Vec<Arc<Volume>>| snapshots.iter().all(|s| may_be_deleted(s));
        let candidates = moments.into_iter().filter(|(_, s)| concerns(s) && may_go(s));
        let candidates = candidates.map(|((taken_ms, _), snapshots)| Candidate {
            taken_ms,
            families: snapshots.iter().filter_map(|s| families.get(&s.id()).copied()).collect(),
            snapshots,
            state: State::Ready,
        });
        let candidates = candidates.collect();
        let all_bytes = pool.space_of(&own).freed_bytes;
        let (gone, freed_bytes, held_bytes) = (BTreeSet::new(), 0, all_bytes);
        Self { pool, own, candidates, known, volumes, gone, all_bytes, freed_bytes, held_bytes }
    }

    /// How much the snapshots of the reserve hold once all chosen ones are deleted.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Chooses the next snapshot or set to delete; `None` if nothing that may be deleted frees space.
    pub(crate) fn choose_next(&mut self) -> Option<Victim> {
        let kept = self.last_of_deleted();
        let may_go = |candidate: &Candidate| {
            candidate.state != State::Chosen && !candidate.snapshots.iter().any(|s| kept.contains(&s.id()))
        };
        let free: Vec<_> = (0..self.candidates.len()).filter(|at| may_go(&self.candidates[*at])).collect();
        for at in free.iter().copied() {
            if self.candidates[at].state == State::Ready {
                if self.gain(&[at]) > 0 {
                    return Some(self.choose(&[at]));
                }
                self.candidates[at].state = State::Idle;
            }
        }
        let together = self.together(&free)?;
        Some(self.choose(&together))
    }

    /// The newest snapshots of volumes that are deleted.
    fn last_of_deleted(&self) -> BTreeSet<VolumeId> {
        let mut newest: BTreeMap<VolumeId, (u64, VolumeId)> = BTreeMap::new();
        let is_there = |id: &VolumeId| self.volumes.contains(id) && !self.gone.contains(id);
        let orphans = self.known.iter().filter(|known| is_there(&known.id) && !is_there(&known.source));
        for Known { id, source, taken_ms } in orphans {
            let last = newest.entry(*source).or_insert((*taken_ms, *id));
            *last = (*last).max((*taken_ms, *id));
        }
        newest.into_values().map(|(_, id)| id).collect()
    }

    /// The snapshots chosen so far, and these too.
    fn gone_with(&self, chosen: &[usize]) -> BTreeSet<VolumeId> {
        let more = chosen.iter().flat_map(|at| self.candidates[*at].snapshots.iter().map(|s| s.id()));
        self.gone.iter().copied().chain(more).collect()
    }

    /// How much space deleting all of `gone` frees, and how much the snapshots of the reserve hold then.
    fn measure(&self, gone: &BTreeSet<VolumeId>) -> (u64, u64) {
        let freed = self.pool.space_of(gone).freed_bytes;
        let all = if gone.is_subset(&self.own) {
            self.all_bytes
        } else {
            self.pool.space_of(&self.own.union(gone).copied().collect()).freed_bytes
        };
        (freed, all.saturating_sub(freed))
    }

    /// How much less the snapshots of the reserve hold once these are deleted too.
    fn gain(&self, chosen: &[usize]) -> u64 {
        self.held_bytes.saturating_sub(self.measure(&self.gone_with(chosen)).1)
    }

    /// Of `idle`, none of which frees space alone, the fewest oldest ones that free space together.
    fn together(&self, idle: &[usize]) -> Option<Vec<usize>> {
        if self.gain(idle) == 0 {
            return None;
        }
        // More of them never free less: the shortest run of the oldest that frees something is found by halving.
        let lens: Vec<_> = (1..=idle.len()).collect();
        let shortest = lens.partition_point(|len| self.gain(&idle[..*len]) == 0);
        let mut run = idle[..*lens.get(shortest)?].to_vec();
        // Without its last one the run frees nothing, so that is needed. Others matter only if they are related to it.
        let last = run.pop()?;
        let mut needed = vec![last];
        let of_last = &self.candidates[last].families;
        let related = run.iter().copied().filter(|at| !self.candidates[*at].families.is_disjoint(of_last));
        let related: Vec<_> = related.collect();
        if self.gain(&[related.as_slice(), &needed].concat()) > 0 {
            run = related;
        }
        let mut from = 0;
        while from < run.len() && self.gain(&needed) == 0 {
            // The newest from which on they free something, with those known to be needed: it is needed as well.
            let starts: Vec<_> = (from..run.len()).collect();
            let enough = |start: &usize| self.gain(&[&run[*start..], &needed].concat()) > 0;
            let start = starts[starts.partition_point(enough).saturating_sub(1)];
            needed.push(run[start]);
            from = start + 1;
        }
        needed.sort_unstable();
        (self.gain(&needed) > 0).then_some(needed)
    }

    fn choose(&mut self, chosen: &[usize]) -> Victim {
        let gone = self.gone_with(chosen);
        let (freed, held) = self.measure(&gone);
        let freed_bytes = freed.saturating_sub(self.freed_bytes);
        (self.gone, self.freed_bytes, self.held_bytes) = (gone, freed, held);
        let mut families = BTreeSet::new();
        for at in chosen {
            self.candidates[*at].state = State::Chosen;
            families.extend(self.candidates[*at].families.iter().copied());
        }
        // Snapshots that share blocks with them may free space now.
        for candidate in self.candidates.iter_mut().filter(|candidate| candidate.state == State::Idle) {
            if !candidate.families.is_disjoint(&families) {
                candidate.state = State::Ready;
            }
        }
        let taken_ms = chosen.iter().map(|at| self.candidates[*at].taken_ms).min().unwrap_or(0);
        let moments = chosen.iter().map(|at| self.candidates[*at].snapshots.clone()).collect();
        Victim { moments, taken_ms, freed_bytes, held_bytes: held }
    }
}
