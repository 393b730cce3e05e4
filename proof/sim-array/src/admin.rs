//! Administrators: each makes one change after the other.

use crate::{
    change::{Bin, Change},
    host::read_all,
    model::MOST_SECTORS,
    scenario::log_uniform,
    shared::Shared,
    vol::{Named, Vol},
};
use quoin_api::{
    Compression, Deduplication, Deletion, MappingCreate, OriginKind, RecycleBinRestore, SnapshotRetain,
    VolumeCreate, VolumeUpdate,
};
use quoin_array::{ArrayError, JobError};
use quoin_base::SECTOR_BYTES;
use quoin_world::World;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Sizes are multiples of it.
const SIZE_STEP_SECTORS: u32 = 8;
const DAY_S: u64 = 86_400;
/// Volumes in the recycle bin at most: they hold space.
const MOST_DELETED: usize = 4;
/// The host that volumes are mapped to.
pub(crate) const HOST: &str = "h1";

/// How often, and how many times, it is looked whether a scrub has ended.
const SCRUB_LOOK_EVERY: Duration = Duration::from_millis(20);
const SCRUB_LOOKS: u32 = 50;

pub(crate) struct Admin {
    pub shared: Arc<Shared>,
    pub rng: ChaCha8Rng,
}

/// What any change may be refused for: the pool is full, or somebody else's change came first.
pub(crate) const REFUSALS: [&str; 4] = ["pool-full", "no-space", "copied-into", "trimming"];

pub(crate) fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap_or_default().to_owned()
}

impl Admin {
    pub(crate) async fn run(mut self) {
        for _ in 0..self.shared.boot.changes {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            if let Err(violation) = self.step().await {
                self.shared.violated(violation);
            }
            let micros = log_uniform(&mut self.rng, 10, 30_000);
            self.shared.world.sleep(Duration::from_micros(micros)).await;
        }
    }

    async fn step(&mut self) -> Result<(), String> {
        if self.shared.model.lock().volumes.len() < 2 {
            return self.create().await;
        }
        match self.rng.random_range(0..100) {
            0..=9 => self.create().await,
            10..=18 => self.delete().await,
            19..=24 => self.use_bin().await,
            25..=28 => self.resize().await,
            29..=32 => self.thicken().await,
            33..=35 => self.rename().await,
            36..=38 => self.template().await,
            39..=41 => self.retain().await,
            42..=43 => self.map().await,
            44 => self.scrub().await,
            45 => self.schedule().await,
            46..=48 => self.reserve().await,
            49..=58 => self.snapshot(OriginKind::Snapshot).await,
            59..=63 => self.snapshot(OriginKind::Clone).await,
            64..=73 => self.restore().await,
            74..=79 => self.refresh().await,
            80..=81 => self.promote().await,
            82..=84 => self.change_groups().await,
            85..=92 => self.use_groups().await,
            _ => self.copy().await,
        }
    }

    /// What became of a change; true if it was made.
    pub(crate) fn ended<T>(
        &self,
        number: u32,
        outcome: Result<T, ArrayError>,
        refusals: &[&str],
    ) -> Result<Option<T>, String> {
        let mut model = self.shared.model.lock();
        let mut totals = self.shared.totals.lock();
        match outcome {
            Ok(value) => {
                model.done(number);
                totals.changes += 1;
                Ok(Some(value))
            }
            Err(error) => {
                let kind = kind(&error);
                let what = model.pending.iter().find(|change| change.number == number);
                let what = what.map(|change| change.what.clone()).unwrap_or_default();
                model.refused(number);
                totals.refused_changes += 1;
                if REFUSALS.iter().chain(refusals).any(|refusal| *refusal == kind) {
                    Ok(None)
                } else {
                    Err(format!("{what} was refused ({kind}): {error}"))
                }
            }
        }
    }

    pub(crate) fn begin(&self, change: Change) -> u32 {
        self.shared.model.lock().begin(change)
    }

    fn size(&mut self) -> u64 {
        let most = MOST_SECTORS / SIZE_STEP_SECTORS;
        let steps = log_uniform(&mut self.rng, 16, u64::from(most)).max(1);
        steps * u64::from(SIZE_STEP_SECTORS) * SECTOR_BYTES
    }

    async fn create(&mut self) -> Result<(), String> {
        let (size_bytes, thick) = (self.size(), self.rng.random_bool(0.25));
        let block_bytes = if self.rng.random_bool(0.3) { 4096 } else { 512 };
        let (number, name) = {
            let mut model = self.shared.model.lock();
            if !model.has_room(1) {
                return Ok(());
            }
            let id = model.number();
            model.add(id);
            let vol = Vol {
                id,
                size_bytes,
                block_bytes,
                thick,
                template: false,
                immutable: false,
                origin: None,
                group: None,
                lun: None,
            };
            let name = format!("v{id}");
            let change = Change::new(format!("create {name}")).volume(&name, None, Some(vol));
            (model.begin(change), name)
        };
        // Each of the ways to reduce it, and none.
        let compression = Compression::ALL[number as usize % Compression::ALL.len()];
        let deduplication = if number % 2 == 0 { Deduplication::On } else { Deduplication::Off };
        let (compression, deduplication) = (Some(compression), Some(deduplication));
        let ways = VolumeCreate { compression, deduplication, ..VolumeCreate::new(&name, size_bytes) };
        let request = VolumeCreate { block_bytes, thick, ..ways };
        let outcome = self.shared.array.create_volume(request).await;
        let made = self.ended(number, outcome, &["cannot-reserve"])?;
        self.shared.totals.lock().created += u64::from(made.is_some());
        Ok(())
    }

    async fn delete(&mut self) -> Result<(), String> {
        let (number, name, now) = {
            let mut model = self.shared.model.lock();
            let Some((name, vol)) = model.pick(&mut self.rng, |_, vol| !vol.immutable) else { return Ok(()) };
            // Names in the bin are unique here, so that a name says which one is meant.
            let now =
                model.bin.contains_key(&name) || model.bin.len() >= MOST_DELETED || self.rng.random_bool(0.3);
            let bin = if now { Bin::Nothing } else { Bin::Fill };
            let change = Change::new(format!("delete {name}")).volume(&name, Some(vol), None).bin(bin);
            (model.begin(change), name, now)
        };
        let deletion = Deletion { unmap: true, force: true, now };
        let outcome = self.shared.array.delete_volume(&name, deletion).await;
        let deleted = self.ended(number, outcome, &["immutable"])?;
        let mut totals = self.shared.totals.lock();
        totals.deleted += u64::from(deleted.is_some());
        totals.discarded += u64::from(deleted.is_some() && !now);
        Ok(())
    }

    /// Brings back a deleted volume, or deletes it for good.
    async fn use_bin(&mut self) -> Result<(), String> {
        let restores = self.rng.random_bool(0.75);
        let (number, name, thin) = {
            let mut model = self.shared.model.lock();
            let Some((name, vol)) = model.pick_deleted(&mut self.rng) else { return Ok(()) };
            // A volume made since may have the name.
            if restores && (!model.has_room(1) || model.volumes.contains_key(&name)) {
                return Ok(());
            }
            let thin = self.rng.random_bool(0.3);
            let change = if restores {
                let after = Vol { thick: vol.thick && !thin, ..vol };
                Change::new(format!("bring back {name}")).volume(&name, None, Some(after))
            } else {
                Change::new(format!("purge {name}")).bin(Bin::Purge(name.clone()))
            };
            (model.begin(change), name, thin)
        };
        let array = self.shared.array.clone();
        let outcome = if restores {
            array.restore_deleted(&name, RecycleBinRestore { name: None, thin }).await.map(drop)
        } else {
            array.purge_deleted(&name).await
        };
        // The array may have needed its space; whether it said so is looked at later.
        let done = self.ended(number, outcome, &["not-found", "immutable"])?.is_some();
        let mut totals = self.shared.totals.lock();
        totals.recovered += u64::from(done && restores);
        totals.purged += u64::from(done && !restores);
        Ok(())
    }

    /// Changes one volume: begins the change, makes it, ends it. True if it was made.
    async fn change(
        &mut self,
        what: &str,
        (name, before): Named,
        after: Vol,
        update: VolumeUpdate,
        refusals: &[&str],
    ) -> Result<bool, String> {
        let new_name = update.name.clone().unwrap_or_else(|| name.clone());
        let change = if new_name == name {
            Change::new(format!("{what} {name}")).volume(&name, Some(before), Some(after))
        } else {
            Change::new(format!("{what} {name}")).volume(&name, Some(before), None).volume(
                &new_name,
                None,
                Some(after),
            )
        };
        let number = self.begin(change);
        let outcome = self.shared.array.change_volume(&name, update).await;
        Ok(self.ended(number, outcome, refusals)?.is_some())
    }

    async fn resize(&mut self) -> Result<(), String> {
        let size_bytes = self.size();
        let Some((name, vol)) = self.pick(|_, vol| !vol.is_frozen() && vol.size_bytes != size_bytes) else {
            return Ok(());
        };
        let (shrinks, force) = (size_bytes < vol.size_bytes, self.rng.random_bool(0.6));
        let after = Vol { size_bytes, ..vol.clone() };
        let update = VolumeUpdate { size_bytes: Some(size_bytes), force, ..VolumeUpdate::default() };
        let cut = shrinks.then(|| {
            let (first, all) = (after.sectors(), vol.sectors());
            self.shared.model.lock().history.begin(vol.id, 0, first, all - first, true)
        });
        let refusals = ["data-lost", "cannot-reserve", "in-use", "immutable", "read-only"];
        let what = if shrinks { "shrink" } else { "grow" };
        let made = self.change(what, (name, vol), after, update, &refusals).await?;
        if let Some(cut) = cut {
            let mut model = self.shared.model.lock();
            if made { model.history.end(cut, true) } else { model.history.cancel(cut) }
        }
        let mut totals = self.shared.totals.lock();
        totals.shrunk += u64::from(made && shrinks);
        totals.grown += u64::from(made && !shrinks);
        Ok(())
    }

    async fn thicken(&mut self) -> Result<(), String> {
        let Some((name, vol)) = self.pick(|_, vol| !vol.is_frozen()) else { return Ok(()) };
        let thick = !vol.thick;
        let after = Vol { thick, ..vol.clone() };
        let update = VolumeUpdate { thick: Some(thick), ..VolumeUpdate::default() };
        let made =
            self.change("thicken", (name, vol), after, update, &["cannot-reserve", "immutable"]).await?;
        self.shared.totals.lock().thickened += u64::from(made && thick);
        Ok(())
    }

    async fn rename(&mut self) -> Result<(), String> {
        let Some((name, vol)) = self.pick(|_, vol| !vol.immutable && vol.group.is_none()) else {
            return Ok(());
        };
        let new_name = format!("r{}", self.shared.model.lock().number());
        let update = VolumeUpdate { name: Some(new_name.clone()), ..VolumeUpdate::default() };
        let made = self.change("rename", (name.clone(), vol.clone()), vol, update, &["immutable"]).await?;
        if made {
            for (_, snapshot) in self.shared.model.lock().sets.iter_mut().flat_map(|set| &mut set.snapshots) {
                if *snapshot == name {
                    snapshot.clone_from(&new_name);
                }
            }
        }
        self.shared.totals.lock().renamed += u64::from(made);
        Ok(())
    }

    async fn template(&mut self) -> Result<(), String> {
        let is_one = self.rng.random_bool(0.5);
        let fits = |_: &str, vol: &Vol| !vol.immutable && vol.template == is_one && vol.lun.is_none();
        let Some((name, vol)) = self.pick(fits) else { return Ok(()) };
        let template = !is_one;
        let after = Vol { template, ..vol.clone() };
        if is_one {
            self.shared.model.lock().frozen.remove(&vol.id);
        }
        let update = VolumeUpdate { template: Some(template), ..VolumeUpdate::default() };
        let made = self.change("template", (name.clone(), vol), after, update, &["in-use"]).await?;
        if made && template {
            self.shared.totals.lock().templates += 1;
            self.freeze(&name).await?;
        }
        Ok(())
    }

    async fn retain(&mut self) -> Result<(), String> {
        if !self.shared.model.lock().may_retain() {
            return Ok(());
        }
        let is_snapshot = |vol: &Vol| vol.origin.is_some_and(|(kind, _)| kind == OriginKind::Snapshot);
        let Some((name, vol)) = self.pick(|_, vol| is_snapshot(vol) && !vol.immutable) else { return Ok(()) };
        let after = Vol { immutable: true, ..vol.clone() };
        let change = Change::new(format!("retain {name}")).volume(&name, Some(vol), Some(after));
        let number = self.begin(change);
        let request = SnapshotRetain { retain_s: DAY_S, force: true };
        let outcome = self.shared.array.retain_snapshot(&name, request).await;
        if self.ended(number, outcome, &["in-use"])?.is_some() {
            self.shared.totals.lock().retained += 1;
            self.freeze(&name).await?;
        }
        Ok(())
    }

    /// From now on the content must stay: it is read, and read again a while later.
    async fn freeze(&mut self, name: &str) -> Result<(), String> {
        self.shared.model.lock().busy.insert(name.to_owned());
        let frozen = read_all(&self.shared, name, true).await;
        self.shared.model.lock().busy.remove(name);
        frozen?;
        self.shared.world.sleep(Duration::from_micros(log_uniform(&mut self.rng, 10, 20_000))).await;
        read_all(&self.shared, name, false).await
    }

    async fn map(&mut self) -> Result<(), String> {
        let is_mapped = self.rng.random_bool(0.4);
        let fits = |_: &str, vol: &Vol| !vol.template && vol.lun.is_some() == is_mapped;
        let Some((name, vol)) = self.pick(fits) else { return Ok(()) };
        let lun = (vol.id % 250 + 1) as u16;
        let after = Vol { lun: (!is_mapped).then_some(lun), ..vol.clone() };
        let change = Change::new(format!("map {name}")).volume(&name, Some(vol), Some(after));
        let number = self.begin(change);
        let outcome = if is_mapped {
            self.shared.array.unmap(HOST, &name, true).await
        } else {
            let request = MappingCreate {
                volume: name,
                host: HOST.into(),
                lun: Some(lun),
                read_only: false,
                writable: true,
            };
            self.shared.array.map(request).await.map(drop)
        };
        let made = self.ended(number, outcome, &["in-use"])?;
        self.shared.totals.lock().mapped += u64::from(made.is_some() && !is_mapped);
        Ok(())
    }

    async fn scrub(&mut self) -> Result<(), String> {
        let array = self.shared.array.clone();
        match array.start_scrub().await {
            Ok(_) => self.shared.totals.lock().scrubs += 1,
            Err(ArrayError::Job(JobError::ScrubRunning)) => {}
            Err(error) => return Err(format!("a scrub was refused: {error}")),
        }
        for _ in 0..SCRUB_LOOKS {
            let now =
                array.scrub_status().await.map_err(|error| format!("scrubs cannot be shown: {error}"))?;
            let (found, ended) = match (&now.running, &now.last) {
                (Some(running), _) => (running.found, false),
                (None, Some(last)) => (last.found, true),
                (None, None) => return Err("a scrub ended without a result".to_owned()),
            };
            let damage = found.damaged_blocks + found.damaged_pages + found.damaged_rows + found.failed_reads;
            if damage > 0 || !now.damaged.is_empty() {
                return Err(format!("a scrub found damage where there is none: {now:?}"));
            }
            if ended {
                self.shared.totals.lock().scrubs_ended += 1;
                break;
            }
            self.shared.world.sleep(SCRUB_LOOK_EVERY).await;
        }
        Ok(())
    }

    pub(crate) fn pick(&mut self, fits: impl Fn(&str, &Vol) -> bool) -> Option<Named> {
        self.shared.model.lock().pick(&mut self.rng, fits)
    }
}
