//! What a client does with forks: snapshots of one volume or of several, clones, restores, refreshes.

use crate::{
    choices::Load,
    client::{Client, Model},
    model::{Change, OBJECT_KINDS, volume_key},
};
use quoin_base::{SliceId, VolumeId};
use quoin_pool::PoolState;
use rand::RngExt;
use std::collections::BTreeSet;

/// The most volumes there are at a time.
const MAX_FORKED: usize = 9;

/// Forks of one transaction.
pub(crate) struct Forks {
    /// In the model.
    id: usize,
    /// Source and target of each.
    volumes: Vec<(VolumeId, VolumeId)>,
    /// The volumes there were before.
    there: Vec<VolumeId>,
}

impl Forks {
    /// Begins forks, each of a source into a target, among the volumes that there are.
    pub(crate) fn begin(model: &mut Model, volumes: Vec<(VolumeId, VolumeId)>, there: Vec<VolumeId>) -> Self {
        let pairs: Vec<_> = volumes.iter().map(|pair| (pair.0.0, pair.1.0)).collect();
        model.cutting.extend(volumes.iter().map(|pair| pair.1));
        model.forking.extend(volumes.iter().map(|pair| pair.0));
        let ids: Vec<_> = there.iter().map(|volume| volume.0).collect();
        let id = model.history.begin_fork(&pairs, &ids);
        Self { id, volumes, there }
    }
}

impl Client {
    /// An id for a new volume. What is to fill a pool of several slices fills one of them as a rule, while others have room.
    pub(crate) fn new_volume_id(&mut self) -> VolumeId {
        let is_one_to_fill = self.shared.load == Load::Full && self.pool.slice_count() > 1;
        if is_one_to_fill && self.rng.random_bool(0.8) {
            self.pool.next_volume_id_near(VolumeId::first_of(SliceId(0)))
        } else {
            self.pool.next_volume_id()
        }
    }

    /// Which volumes to fork into which, begun in the model, and those there are; `None` if there are enough.
    fn plan_fork(&mut self) -> Option<Forks> {
        let shared = self.shared.clone();
        let mut model = shared.model.lock();
        let free: Vec<_> = model.usable_volumes().filter(|v| !model.deleting.contains(v)).collect();
        let mut volumes: Vec<(VolumeId, VolumeId)> = Vec::new();
        for &source in &free {
            if self.rng.random_bool(0.5) || model.cutting.contains(&source) {
                continue;
            }
            let windows = model.history.windows(source.0);
            let fits = |target: &&VolumeId| {
                **target != source
                    && target.slice() == source.slice()
                    && !model.cutting.contains(*target)
                    && !model.forking.contains(*target)
                    && !volumes.iter().any(|pair| pair.0 == **target || pair.1 == **target)
                    && model.history.windows(target.0) == windows
            };
            let targets: Vec<_> = free.iter().filter(fits).collect();
            if !targets.is_empty() && self.rng.random_bool(0.3) {
                volumes.push((source, *targets[self.rng.random_range(0..targets.len())]));
            } else if free.len() + volumes.len() < MAX_FORKED {
                volumes.push((source, self.pool.next_volume_id_near(source)));
            }
            if self.rng.random_bool(0.4) {
                break;
            }
        }
        // A source is not a target of the same transaction.
        let targets: BTreeSet<_> = volumes.iter().map(|pair| pair.1).collect();
        volumes.retain(|pair| !targets.contains(&pair.0));
        if volumes.is_empty() {
            return None;
        }
        Some(Forks::begin(&mut model, volumes, free))
    }

    /// Snapshots of one volume or of several, restores, refreshes: forks of one moment.
    pub(crate) async fn fork(&mut self) -> Result<(), String> {
        match self.plan_fork() {
            Some(forks) => self.carry_out(forks).await.map(|_| ()),
            None => self.change_volumes().await,
        }
    }

    /// Forks some volume into a new one; `None` if there is nothing to fork, or it was not to be.
    pub(crate) async fn fork_one(&mut self) -> Result<Option<VolumeId>, String> {
        let (forks, target) = {
            let mut model = self.shared.model.lock();
            let usable: Vec<_> = model.usable_volumes().filter(|v| !model.deleting.contains(v)).collect();
            let free: Vec<_> = usable.iter().copied().filter(|v| !model.cutting.contains(v)).collect();
            if free.is_empty() {
                return Ok(None);
            }
            let source = free[self.rng.random_range(0..free.len())];
            let target = self.pool.next_volume_id_near(source);
            (Forks::begin(&mut model, vec![(source, target)], usable), target)
        };
        Ok(self.carry_out(forks).await?.then_some(target))
    }

    /// True if they were made.
    pub(crate) async fn carry_out(&mut self, forks: Forks) -> Result<bool, String> {
        let Forks { id, volumes, there } = forks;
        let mut changes = Vec::new();
        for &(source, target) in &volumes {
            changes.push(Change::Fork(source, target));
            let value = format!("{{\"id\":{},\"of\":{}}}", target.0, source.0).into_bytes();
            changes.push(Change::Put(OBJECT_KINDS[2], volume_key(target), value));
        }
        let done = self.commit(changes).await?;
        // In doubt, like all that is cut off.
        let in_doubt = !done && matches!(self.pool.state(), PoolState::Offline { .. });
        let shared = self.shared.clone();
        if !in_doubt {
            let mut model = shared.model.lock();
            if done {
                model.history.end_fork(id, true)
            } else {
                model.history.cancel_fork(id)
            }
            model.cutting.retain(|volume| !volumes.iter().any(|pair| pair.1 == *volume));
            for (source, _) in &volumes {
                let at = model.forking.iter().position(|volume| volume == source);
                at.map(|at| model.forking.swap_remove(at));
            }
        }
        if done {
            let mut totals = shared.totals.lock();
            totals.forks += volumes.len() as u64;
            totals.group_forks += u64::from(volumes.len() > 1);
            totals.forks_over += volumes.iter().filter(|pair| there.contains(&pair.1)).count() as u64;
        }
        Ok(done)
    }
}
