//! What a client does with range copies: it forks a volume, copies ranges of the fork into others, and deletes the fork.
//! A fork that a crash left behind is copied from again, or deleted, by whoever comes upon it.

use crate::{
    client::{Client, read},
    forks::Forks,
    model::Place,
    scenario::log_uniform,
};
use quoin_base::{ByteRange, SECTOR_BYTES, VolumeId};
use quoin_pool::PoolError;
use rand::RngExt;

/// Sectors of one read of what is to be copied.
const READ_SECTORS: u32 = 256;

/// A range of a fork, and the volume it goes to.
#[derive(Clone, Copy)]
struct Copy {
    source: VolumeId,
    target: VolumeId,
    window: usize,
    first: u32,
    sectors: u32,
}

impl Client {
    /// Copies some ranges.
    pub(crate) async fn copy(&mut self) -> Result<(), String> {
        let left = {
            let mut model = self.shared.model.lock();
            let left = model.hidden.iter().copied().find(|volume| !model.copying.contains(volume));
            model.copying.extend(left);
            left
        };
        let source = match left {
            Some(left) => left,
            None => match self.fork_to_copy().await? {
                Some(source) => source,
                None => return Ok(()),
            },
        };
        let outcome = self.copy_from(source).await;
        self.shared.model.lock().copying.remove(&source);
        outcome.or_else(|error| self.shared.excuse(&self.pool, "copy", &error))
    }

    /// A new fork of some volume, which nobody else uses.
    async fn fork_to_copy(&mut self) -> Result<Option<VolumeId>, String> {
        let (forks, hidden) = {
            let mut model = self.shared.model.lock();
            let usable = |v: &VolumeId| !model.cutting.contains(v) && !model.deleting.contains(v);
            let sources: Vec<_> = model.usable_volumes().filter(usable).collect();
            if sources.is_empty() {
                return Ok(None);
            }
            let source = sources[self.rng.random_range(0..sources.len())];
            let hidden = self.pool.next_volume_id_near(source);
            model.hidden.insert(hidden);
            model.copying.insert(hidden);
            (Forks::begin(&mut model, vec![(source, hidden)], sources), hidden)
        };
        if self.carry_out(forks).await? {
            return Ok(Some(hidden));
        }
        let mut model = self.shared.model.lock();
        model.copying.remove(&hidden);
        // In doubt it stays hidden.
        if matches!(self.pool.state(), quoin_pool::PoolState::Online) {
            model.hidden.remove(&hidden);
        }
        Ok(None)
    }

    async fn copy_from(&mut self, source: VolumeId) -> Result<(), PoolError> {
        self.pool.settle_fork(source).await?;
        for _ in 0..self.rng.random_range(0..=3) {
            let Some(copy) = self.choose(source) else { break };
            match self.copy_range(copy).await {
                Ok(())
                | Err(PoolError::NoSpace | PoolError::BeyondEnd { .. } | PoolError::NoSuchVolume(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.pool.settle_copies(std::time::Duration::ZERO).await?;
        if let Err(violation) = self.delete_volume(source).await {
            self.shared.violated(violation);
        }
        Ok(())
    }

    fn choose(&mut self, source: VolumeId) -> Option<Copy> {
        let model = self.shared.model.lock();
        let windows = model.history.windows(source.0);
        let fits = |volume: &VolumeId| model.history.windows(volume.0) == windows;
        let targets: Vec<_> = model.usable_volumes().filter(fits).collect();
        if targets.is_empty() || windows.is_empty() {
            return None;
        }
        let rng = &mut self.rng;
        let target = targets[rng.random_range(0..targets.len())];
        let window = rng.random_range(0..windows.len());
        let all = windows[window].sectors;
        let (first, sectors) = if rng.random_bool(0.3) {
            (0, all)
        } else {
            let first = rng.random_range(0..all);
            let first = if rng.random_bool(0.5) { first / 16 * 16 } else { first };
            (first, (log_uniform(rng, 1, 4096) as u32).min(all - first))
        };
        Some(Copy { source, target, window, first, sectors })
    }

    async fn copy_range(&mut self, copy: Copy) -> Result<(), PoolError> {
        let Copy { source, target, window, first, sectors } = copy;
        // What is copied is known once it was read: nobody writes there.
        for at in (first..first + sectors).step_by(READ_SECTORS as usize) {
            let count = READ_SECTORS.min(first + sectors - at);
            match read(&self.shared, &self.pool, source, window, at, count).await {
                Ok(outcome) => outcome?,
                Err(violation) => {
                    self.shared.violated(violation);
                    return Ok(());
                }
            }
        }
        let (ids, base) = {
            let mut model = self.shared.model.lock();
            let base = model.history.windows(source.0)[window].first;
            let place = |volume: VolumeId| Place { volume: volume.0, window, first };
            (model.history.begin_copy(place(source), place(target), sectors), base)
        };
        let Some(ids) = ids else { return Ok(()) };
        let offset = (base + u64::from(first)) * SECTOR_BYTES;
        let outcome =
            self.copy_all(source, target, ByteRange::new(offset, u64::from(sectors) * SECTOR_BYTES)).await;
        let mut model = self.shared.model.lock();
        ids.into_iter().for_each(|id| model.history.end(id, outcome.is_ok()));
        if outcome.is_ok() {
            self.shared.totals.lock().copied_bytes += u64::from(sectors) * SECTOR_BYTES;
        }
        outcome
    }

    async fn copy_all(&self, source: VolumeId, target: VolumeId, range: ByteRange) -> Result<(), PoolError> {
        let mut rest = range;
        while rest.len > 0 {
            let done = self.pool.copy_some(source, rest.offset, target, rest).await?;
            rest = ByteRange::new(rest.offset + done, rest.len - done);
        }
        Ok(())
    }
}
