//! Content that moves between volumes: snapshots, clones, restores, refreshes, range copies.

use crate::{
    admin::{self, Admin, REFUSALS},
    change::Change,
    host::read_all,
    model::Model,
    scenario::log_uniform,
    vol::{Named, Vol},
};
use quoin_api::{
    CloneCreate, CopyCreate, CopyState, OriginKind, SnapshotCreate, SnapshotRefresh, SnapshotRestore,
};
use quoin_base::SECTOR_BYTES;
use quoin_sim::{OpId, Place};
use quoin_world::World;
use rand::RngExt;
use std::time::Duration;

/// What a copy may be refused for, besides what any change may be.
const COPY_REFUSALS: [&str; 3] = ["in-use", "immutable", "read-only"];
/// How often a copy is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Model {
    pub(crate) fn fork(&mut self, pairs: &[(u32, u32)]) -> usize {
        let there: Vec<u32> = self.volumes.values().map(|vol| vol.id).collect();
        self.history.begin_fork(pairs, &there)
    }

    /// Volumes are about to be forked, each into a new one of this name; the change.
    pub(crate) fn fork_new(
        &mut self,
        what: &str,
        kind: OriginKind,
        thick: bool,
        sources: &[(String, Vol, String)],
    ) -> Change {
        let mut change = Change::new(what);
        let mut pairs = Vec::new();
        for (source, vol, name) in sources {
            let id = self.number();
            pairs.push((vol.id, id));
            let forked = Vol { thick, ..vol.forked(id, kind) };
            // The source stays as it is, and nobody else changes it meanwhile.
            change =
                change.volume(name, None, Some(forked)).volume(source, Some(vol.clone()), Some(vol.clone()));
        }
        let fork = self.fork(&pairs);
        change.fork(fork)
    }

    /// Volumes are about to become what others are: each with its source.
    pub(crate) fn replace(&mut self, what: &str, pairs: &[(Named, Named)]) -> Change {
        let mut change = Change::new(what);
        for ((target, before), (source, from)) in pairs {
            let after = Vol { size_bytes: from.size_bytes, ..before.clone() };
            change = change.volume(target, Some(before.clone()), Some(after));
            change = change.volume(source, Some(from.clone()), Some(from.clone()));
        }
        let ids: Vec<_> = pairs.iter().map(|((_, target), (_, source))| (source.id, target.id)).collect();
        let fork = self.fork(&ids);
        change.fork(fork)
    }
}

impl Admin {
    pub(crate) async fn snapshot(&mut self, kind: OriginKind) -> Result<(), String> {
        let thick = kind == OriginKind::Clone && self.rng.random_bool(0.3);
        let (number, source, name) = {
            let mut model = self.shared.model.lock();
            if !model.has_room(1) {
                return Ok(());
            }
            let Some((source, vol)) = model.pick(&mut self.rng, |_, _| true) else { return Ok(()) };
            let name = format!("{}{}", if thick { "t" } else { "s" }, model.number());
            let what = format!("{kind} {name} of {source}");
            let change = model.fork_new(&what, kind, thick, &[(source.clone(), vol, name.clone())]);
            (model.begin(change), source, name)
        };
        let array = self.shared.array.clone();
        let outcome = match kind {
            OriginKind::Snapshot => {
                let request = SnapshotCreate {
                    volume: source,
                    name: Some(name),
                    tags: Default::default(),
                    writable: true,
                    retain_s: None,
                };
                array.create_snapshot(request).await
            }
            OriginKind::Clone => {
                let request = CloneCreate { name, thick, tags: Default::default(), folder: None };
                array.clone_volume(&source, request).await
            }
        };
        let made = self.ended(number, outcome, &["cannot-reserve"])?;
        let mut totals = self.shared.totals.lock();
        match kind {
            OriginKind::Snapshot => totals.snapshots += u64::from(made.is_some()),
            OriginKind::Clone => totals.clones += u64::from(made.is_some()),
        }
        Ok(())
    }

    /// A snapshot or clone that nobody is at, with the volume that it comes from.
    fn pick_pair(&mut self, fits: impl Fn(&Vol, &Vol) -> bool) -> Option<(Named, Named)> {
        let model = self.shared.model.lock();
        let source_of = |vol: &Vol| {
            let name = model.name_of(vol.origin?.1).filter(|name| model.is_free(name))?;
            let source = model.volumes.get(&name)?.clone();
            (source.block_bytes == vol.block_bytes).then_some((name, source))
        };
        let forked = model
            .pick(&mut self.rng, |_, vol| source_of(vol).is_some_and(|(_, source)| fits(vol, &source)))?;
        let source = source_of(&forked.1)?;
        Some((forked, source))
    }

    pub(crate) async fn restore(&mut self) -> Result<(), String> {
        let Some((from, to)) = self.pick_pair(|_, to| !to.is_frozen()) else { return Ok(()) };
        let keeps = self.rng.random_bool(0.3);
        let (kept, number, name) = {
            let mut model = self.shared.model.lock();
            let keep = (keeps && model.has_room(1)).then(|| format!("k{}", model.number()));
            // What was there is kept first, by a transaction of its own.
            let kept = keep.map(|keep| {
                let sources = [(to.0.clone(), to.1.clone(), keep.clone())];
                let what = format!("keep {} as {keep}", to.0);
                let change = model.fork_new(&what, OriginKind::Snapshot, false, &sources);
                (keep, model.begin(change))
            });
            let what = format!("restore {} from {}", to.0, from.0);
            let change = model.replace(&what, &[(to.clone(), from.clone())]);
            (kept, model.begin(change), from.0.clone())
        };
        let keep = kept.as_ref().map(|(keep, _)| keep.clone());
        let request = SnapshotRestore { to: Some(to.0.clone()), keep, force: true };
        let outcome = self.shared.array.restore_snapshot(&name, request).await.map(drop);
        let (was_kept, kept) = match kept {
            // Of the two steps only the second may have been refused.
            Some((keep, first)) => {
                let is_there = self.shared.array.volume(&keep).is_ok();
                let mut model = self.shared.model.lock();
                if is_there {
                    model.done(first)
                } else {
                    model.refused(first)
                }
                (is_there, true)
            }
            None => (false, false),
        };
        let made = self.ended(number, outcome, &["cannot-reserve", "immutable", "in-use", "read-only"])?;
        if made.is_some() && kept && !was_kept {
            return Err(format!("{} was restored, and what it was is not kept", to.0));
        }
        let mut totals = self.shared.totals.lock();
        totals.restored += u64::from(made.is_some());
        totals.kept += u64::from(was_kept);
        Ok(())
    }

    pub(crate) async fn refresh(&mut self) -> Result<(), String> {
        let Some((to, from)) = self.pick_pair(|to, _| !to.is_frozen()) else { return Ok(()) };
        let number = {
            let mut model = self.shared.model.lock();
            let change = model.replace(&format!("refresh {} from {}", to.0, from.0), &[(to.clone(), from)]);
            model.begin(change)
        };
        let request = SnapshotRefresh { from: None, force: true };
        let outcome = self.shared.array.refresh_snapshot(&to.0, request).await;
        let made = self.ended(number, outcome, &["cannot-reserve", "immutable", "in-use", "in-set"])?;
        self.shared.totals.lock().refreshed += u64::from(made.is_some());
        Ok(())
    }

    pub(crate) async fn promote(&mut self) -> Result<(), String> {
        let Some((name, vol)) = self.pick(|_, vol| vol.origin.is_some() && !vol.immutable) else {
            return Ok(());
        };
        let after = Vol { origin: None, ..vol.clone() };
        let number =
            self.begin(Change::new(format!("promote {name}")).volume(&name, Some(vol.clone()), Some(after)));
        let outcome = self.shared.array.promote_snapshot(&name).await;
        let made = self.ended(number, outcome, &["immutable"])?;
        if made.is_some() {
            // It is a part of no set any more.
            let mut model = self.shared.model.lock();
            model.sets.retain(|set| !set.snapshots.iter().any(|(_, snapshot)| *snapshot == name));
        }
        self.shared.totals.lock().promoted += u64::from(made.is_some());
        Ok(())
    }

    /// Copies a range, mostly to another address. Nobody writes to the source until the copy has begun, so that it is
    /// known what is copied.
    pub(crate) async fn copy(&mut self) -> Result<(), String> {
        let Some((source, from)) = self.pick(|_, _| true) else { return Ok(()) };
        let fits = |name: &str, vol: &Vol| name != source && !vol.is_frozen();
        let Some((target, to)) = self.pick(fits) else { return Ok(()) };
        let number = {
            let mut model = self.shared.model.lock();
            model.quiet.insert(from.id);
            let change = Change::new(format!("copy {source} into {target}"));
            let change = change.volume(&source, Some(from.clone()), Some(from.clone()));
            model.begin(change.volume(&target, Some(to.clone()), Some(to.clone())))
        };
        let outcome = self.copy_quiet((&source, &from), (&target, &to)).await;
        let mut model = self.shared.model.lock();
        model.quiet.remove(&from.id);
        model.done(number);
        outcome
    }

    async fn copy_quiet(
        &mut self,
        (source, from): (&str, &Vol),
        (target, to): (&str, &Vol),
    ) -> Result<(), String> {
        self.no_request_to(from.id).await;
        read_all(&self.shared, source, false).await?;
        let unit = (from.block_bytes.max(to.block_bytes) / SECTOR_BYTES as u32).max(1);
        let (most, rng) = (from.sectors().min(to.sectors()) / unit, &mut self.rng);
        let sectors = (log_uniform(rng, 1, u64::from(most)) as u32).clamp(1, most) * unit;
        let place = |rng: &mut rand_chacha::ChaCha8Rng, vol: &Vol| {
            let first = rng.random_range(0..=(vol.sectors() - sectors) / unit) * unit;
            if rng.random_bool(0.5) { first / 16 * 16 } else { first }
        };
        let (first, to_first) = (place(rng, from), place(rng, to));
        let ids: Option<Vec<OpId>> = self.shared.model.lock().history.begin_copy(
            Place { volume: from.id, window: 0, first },
            Place { volume: to.id, window: 0, first: to_first },
            sectors,
        );
        let Some(ids) = ids else { return Ok(()) };
        let bytes = |sectors: u32| u64::from(sectors) * SECTOR_BYTES;
        let request = CopyCreate {
            target: target.to_owned(),
            from_bytes: bytes(first),
            to_bytes: bytes(to_first),
            length_bytes: Some(bytes(sectors)),
            force: true,
        };
        let begun = self.shared.array.copy_volume(source, request).await;
        let is_done = match begun {
            Ok(copy) => {
                // From here on the source may change: what is copied is a fork of it.
                self.shared.model.lock().quiet.remove(&from.id);
                let ended = self.copy_ends(copy.id).await;
                ended.map_err(|why| format!("a copy from {source} into {target} {why}"))?
            }
            Err(error) if COPY_REFUSALS.iter().chain(&REFUSALS).any(|kind| *kind == admin::kind(&error)) => {
                false
            }
            Err(error) => return Err(format!("a copy from {source} into {target} was refused: {error}")),
        };
        let mut model = self.shared.model.lock();
        ids.into_iter().for_each(|id| model.history.end(id, is_done));
        let mut totals = self.shared.totals.lock();
        totals.copies += u64::from(is_done);
        totals.failed_copies += u64::from(!is_done);
        totals.copied_bytes += if is_done { bytes(sectors) } else { 0 };
        Ok(())
    }

    /// Waits until no host has a request to a volume under way.
    async fn no_request_to(&self, id: u32) {
        while self.shared.model.lock().requests.get(&id).is_some_and(|requests| *requests > 0) {
            self.shared.world.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for the end of a copy: true if all was copied, false if the pool had no room for it.
    async fn copy_ends(&self, id: u32) -> Result<bool, String> {
        loop {
            let now = self.shared.array.show_copy(id).map_err(|e| format!("cannot be shown: {e}"))?;
            match now.state {
                CopyState::Done => return Ok(true),
                CopyState::Failed if now.error.as_deref().is_some_and(is_for_space) => return Ok(false),
                CopyState::Failed | CopyState::Cancelled => return Err(format!("ended: {now:?}")),
                CopyState::Running | CopyState::Finishing => self.shared.world.sleep(LOOK_EVERY).await,
            }
        }
    }
}

/// Whether a copy ended since the pool had no room for it.
fn is_for_space(why: &str) -> bool {
    ["space", "full"].iter().any(|word| why.contains(word))
}
