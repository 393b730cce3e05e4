//! A client: writes, reads, unmaps, and changes the catalog, telling the model of all it does.

use crate::{
    choices::Load,
    model::{CatalogModel, Change, History, OBJECT_KINDS, Window, volume_key},
    scenario::{Boot, Ending, VOLUME_END, log_uniform, windows},
    totals::Totals,
};
use parking_lot::Mutex;
use quoin_base::{ByteRange, SECTOR_BYTES, VolumeId};
use quoin_pool::{Pool, PoolError};
use quoin_world::{Slice, World};
use quoin_world_sim::SimWorld;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The most volumes there are at a time without those made by forks.
const MAX_VOLUMES: usize = 4;
/// The most writes between a fork and its deletion.
const TURN_WRITES: u32 = 40;
/// The most sectors of one write.
const MAX_WRITE_SECTORS: u64 = 512;

/// What the pool must remember.
pub(crate) struct Model {
    pub history: History,
    pub catalog: CatalogModel,
    /// Volumes somebody is about to delete.
    pub deleting: BTreeSet<VolumeId>,
    /// Volumes whose tail somebody cuts off, or into which somebody forks another.
    pub cutting: BTreeSet<VolumeId>,
    /// Volumes that are being forked, once for each fork. Nobody forks into them: who saw what would be hard to tell.
    pub forking: Vec<VolumeId>,
    /// Forks that are there to be copied from, and nobody writes to; and those that somebody copies from now.
    pub hidden: BTreeSet<VolumeId>,
    pub copying: BTreeSet<VolumeId>,
}

impl Model {
    /// The volumes that anything may be done with.
    pub(crate) fn usable_volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.catalog.volumes().filter(|volume| !self.hidden.contains(volume))
    }
}

/// What the clients of one boot, and the one who runs it, share.
pub(crate) struct Shared {
    pub world: Arc<SimWorld>,
    pub model: Arc<Mutex<Model>>,
    pub totals: Arc<Mutex<Totals>>,
    /// The first violation.
    pub violation: Arc<Mutex<Option<String>>>,
    pub stop: AtomicBool,
    pub load: Load,
    pub boot: Boot,
    /// Drives fail in this boot: the pool may go offline, and reads may fail.
    pub may_fail: bool,
    /// Drives die in this seed, one a boot.
    pub dies: bool,
    /// Set if more drives may vanish than the pool tolerates.
    pub beyond: Option<Arc<crate::vanish::Beyond>>,
    /// Data segments were damaged in this seed: what they hold may be unreadable from then on.
    pub damaged: bool,
    /// Drives were damaged in this seed, perhaps no more of them than the layout makes up for: all can be read, and a check
    /// finds something.
    pub spoiled: bool,
    pub policies: crate::policies::Policies,
}

impl Shared {
    pub(crate) fn violated(&self, what: String) {
        self.violation.lock().get_or_insert(what);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether volumes are deduplicated in this seed.
    fn deduplicates(&self) -> bool {
        self.model.lock().catalog.deduplicates
    }

    /// Whether more drives are away than the pool tolerates, or were until just now.
    pub(crate) fn is_beyond(&self) -> bool {
        self.beyond.as_ref().is_some_and(|beyond| beyond.excuses(self.world.now()))
    }
}

/// One client task.
pub(crate) struct Client {
    pub shared: Arc<Shared>,
    pub pool: Arc<Pool>,
    pub rng: ChaCha8Rng,
    /// Where its sequential writes go on.
    pub cursor: u32,
    pub number: usize,
}

/// A range of a volume that is used.
#[derive(Clone, Copy)]
struct Target {
    volume: VolumeId,
    window: usize,
    at: Window,
    first: u32,
    sectors: u32,
}

impl Target {
    fn range(&self) -> ByteRange {
        let first = self.at.first + u64::from(self.first);
        ByteRange::new(first * SECTOR_BYTES, u64::from(self.sectors) * SECTOR_BYTES)
    }
}

impl Client {
    /// Does its part of the boot, or stops at the first violation.
    pub(crate) async fn run(mut self) {
        for _ in 0..self.shared.boot.operations {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            if let Err(violation) = self.step().await {
                self.shared.violated(violation);
            }
        }
    }

    async fn step(&mut self) -> Result<(), String> {
        // write, read, unmap, catalog, volume, checkpoint, drain, sleep, fork, copy
        let weights: [u32; 10] = match self.shared.load {
            Load::Mixed => [52, 22, 9, 4, 1, 1, 1, 10, 3, 2],
            Load::Hot => [68, 14, 5, 2, 0, 2, 1, 8, 3, 1],
            Load::Full => [68, 12, 8, 3, 1, 1, 1, 6, 2, 2],
            Load::Churn => [35, 14, 5, 20, 14, 2, 2, 8, 0, 1],
            Load::Uniform => [72, 12, 5, 2, 0, 1, 1, 7, 0, 0],
            Load::Rewrite => [78, 12, 2, 1, 0, 1, 0, 6, 1, 0],
            Load::Forks => [48, 18, 5, 2, 3, 1, 1, 6, 16, 6],
            Load::Sparse => [48, 24, 4, 1, 4, 3, 1, 4, 14, 4],
            Load::Turns if self.number == 0 => return self.turn().await,
            Load::Turns => [6, 86, 1, 1, 0, 0, 0, 6, 0, 0],
        };
        let mut left = self.rng.random_range(0..weights.iter().sum::<u32>());
        let choice = weights.iter().position(|&w| {
            let hit = left < w;
            left = left.saturating_sub(w);
            hit
        });
        match choice.unwrap_or(0) {
            0 => self.write().await,
            1 => self.read().await,
            2 => self.unmap(None).await,
            3 => self.change_catalog().await,
            4 => self.change_volumes().await,
            5 => {
                self.ask("checkpoint").await?;
                self.scrub().await
            }
            6 => {
                // Of what is destaged now, some does not come out of RAM as it went in.
                self.pool.flip_bits(2);
                self.ask("drain").await
            }
            8 => self.fork().await,
            9 if !self.shared.policies.is_on => self.copy().await,
            _ => {
                if self.shared.deduplicates() && self.rng.random_bool(0.4) {
                    self.reduce()?;
                }
                let micros = log_uniform(&mut self.rng, 10, 60_000);
                self.shared.world.sleep(Duration::from_micros(micros)).await;
                Ok(())
            }
        }
    }

    /// Forks a volume, writes to many places of it, and deletes the fork.
    async fn turn(&mut self) -> Result<(), String> {
        let Some(forked) = self.fork_one().await? else { return self.change_volumes().await };
        for _ in 0..self.rng.random_range(4..=TURN_WRITES) {
            self.write().await?;
        }
        self.ask("drain").await?;
        self.delete_volume(forked).await?;
        self.ask("drain").await
    }

    pub(crate) fn window(&mut self) -> Option<(VolumeId, usize, Window)> {
        let model = self.shared.model.lock();
        let volumes: Vec<_> = model.usable_volumes().collect();
        if volumes.is_empty() {
            return None;
        }
        let volume = volumes[self.rng.random_range(0..volumes.len())];
        let windows = model.history.windows(volume.0);
        let mut window = self.rng.random_range(0..windows.len());
        if self.shared.load == Load::Turns {
            // What is read is as a rule not what is written, but hangs on the same nodes of the map.
            let others = usize::from(self.number > 0 && self.rng.random_bool(0.9));
            window = (window / 2 * 2 + others).min(windows.len() - 1);
        }
        Some((volume, window, windows[window]))
    }

    fn target(&mut self) -> Option<Target> {
        let (volume, window, at) = self.window()?;
        let rng = &mut self.rng;
        let blocks = at.sectors / 16;
        let (first, sectors) = match self.shared.load {
            Load::Hot => (rng.random_range(0..at.sectors.min(192)), log_uniform(rng, 1, 48) as u32),
            Load::Uniform => (rng.random_range(0..blocks) * 16, 16),
            Load::Rewrite => (rng.random_range(0..blocks.min(128)) * 16, log_uniform(rng, 64, 256) as u32),
            Load::Full => (self.cursor % blocks * 16, rng.random_range(8..=32) * 16),
            Load::Sparse | Load::Turns => {
                (rng.random_range(0..blocks) * 16, rng.random_range(1..=at.sectors))
            }
            Load::Mixed | Load::Churn | Load::Forks => {
                let sectors = if rng.random_bool(0.4) {
                    log_uniform(rng, 1, MAX_WRITE_SECTORS / 16) as u32 * 16
                } else {
                    log_uniform(rng, 1, MAX_WRITE_SECTORS) as u32
                };
                let first = match rng.random_range(0..10) {
                    0..=2 => rng.random_range(0..at.sectors.min(512)),
                    3..=4 => self.cursor % blocks * 16,
                    5..=6 => rng.random_range(0..blocks) * 16,
                    _ => rng.random_range(0..at.sectors),
                };
                (first, sectors)
            }
        };
        let sectors = sectors.min(at.sectors - first);
        self.cursor += sectors.div_ceil(16);
        Some(Target { volume, window, at, first, sectors })
    }

    pub(crate) async fn write(&mut self) -> Result<(), String> {
        let Some(target) = self.target() else { return Ok(()) };
        let Target { volume, window, at, first, sectors } = target;
        let zero = self.rng.random_bool(0.03);
        let shared = self.shared.clone();
        let reserved = || shared.model.lock().catalog.reserved(volume).filter(|(bytes, _)| *bytes > 0);
        let promised = reserved();
        // What others wrote before, or itself, for deduplication to find.
        let deduplicates = self.shared.deduplicates();
        let again = (deduplicates && self.rng.random_bool(0.4)).then(|| self.rng.random());
        let (id, data) = {
            let mut model = self.shared.model.lock();
            let history = &mut model.history;
            let again = again.and_then(|pick| history.begin_again(volume.0, window, first, sectors, pick));
            let id = again.unwrap_or_else(|| history.begin(volume.0, window, first, sectors, zero));
            (id, history.content(id, at.first + u64::from(first), sectors))
        };
        let data = self.cut_up(data);
        let outcome = self.pool.write(volume, target.range().offset, data).await;
        self.shared.model.lock().history.end(id, outcome.is_ok());
        // Beyond what the layout tolerates nothing is promised, nor while drives are lost that took the room with them.
        let is_beyond =
            || self.pool.protection().unreadable_segments > 0 || self.shared.lacks_promised(&self.pool);
        let is_promised = || promised.is_some() && reserved() == promised && !is_beyond();
        match outcome {
            Ok(()) => {
                let mut totals = self.shared.totals.lock();
                totals.writes += 1;
                totals.reserved_writes += u64::from(promised.is_some());
                totals.written_bytes += target.range().len;
                Ok(())
            }
            Err(PoolError::NoSpace) if is_promised() => Err(format!(
                "a write to volume {volume}, which has space reserved ({promised:?}), was refused"
            )),
            Err(PoolError::BeyondEnd { .. }) => {
                self.shared.totals.lock().refused_beyond_end += 1;
                Ok(())
            }
            Err(PoolError::NoSpace) => {
                self.shared.totals.lock().refused_full += 1;
                if self.rng.random_bool(0.3) { self.unmap(Some(4096)).await } else { Ok(()) }
            }
            Err(error) => self.failed("write", volume, error),
        }
    }

    /// The same bytes in up to three slices.
    fn cut_up(&mut self, data: Slice) -> Vec<Slice> {
        let sectors = data.len() / SECTOR_BYTES as usize;
        if sectors < 3 || self.rng.random_bool(0.7) {
            return vec![data];
        }
        let one = self.rng.random_range(1..sectors - 1) * SECTOR_BYTES as usize;
        let two = self.rng.random_range(one / 512 + 1..sectors) * SECTOR_BYTES as usize;
        vec![data.slice(..one), data.slice(one..two), data.slice(two..)]
    }

    pub(crate) fn failed(&self, doing: &str, volume: VolumeId, error: PoolError) -> Result<(), String> {
        let model = self.shared.model.lock();
        let gone = model.deleting.contains(&volume) || !model.catalog.volumes().any(|v| v == volume);
        match error {
            PoolError::NoSuchVolume(named) if named == volume && gone => Ok(()),
            error => self.shared.excuse(&self.pool, doing, &error),
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        if self.rng.random_bool(0.04) {
            return self.stream().await;
        }
        let Some(mut target) = self.target() else { return Ok(()) };
        // What is just being written is the most interesting.
        let written = self.shared.model.lock().history.last_begun();
        if let Some((volume, window, first, sectors)) = written.filter(|_| self.rng.random_bool(0.4)) {
            target = Target { volume: VolumeId(volume), window, first, sectors, ..target };
        }
        let Target { volume, window, first, sectors, .. } = target;
        match read(&self.shared, &self.pool, volume, window, first, sectors).await? {
            Ok(()) => Ok(()),
            Err(error) => self.failed("read", volume, error),
        }
    }

    async fn unmap(&mut self, sectors: Option<u32>) -> Result<(), String> {
        if sectors.is_none() && self.rng.random_bool(0.05) {
            return self.cut_tail().await;
        }
        let Some(mut target) = self.target() else { return Ok(()) };
        let long = sectors.is_none() && self.rng.random_bool(0.1);
        let wanted = sectors.unwrap_or_else(|| log_uniform(&mut self.rng, 1, 2048) as u32);
        (target.first, target.sectors) = if long {
            (0, target.at.sectors)
        } else {
            (target.first, wanted.min(target.at.sectors - target.first))
        };
        let Target { volume, window, at, first, sectors } = target;
        let (id, range) = {
            let mut model = self.shared.model.lock();
            let range = if long { around(&model.history.windows(volume.0), at) } else { target.range() };
            (model.history.begin(volume.0, window, first, sectors, true), range)
        };
        let outcome = self.pool.unmap(volume, range).await;
        self.shared.model.lock().history.end(id, outcome.is_ok());
        match outcome {
            Ok(()) => {
                self.shared.totals.lock().unmaps += 1;
                Ok(())
            }
            // The tail is being cut off: some of it may have been unmapped before.
            Err(PoolError::BeyondEnd { .. }) => Ok(()),
            // Nodes of a shared map would have to be copied.
            Err(PoolError::NoSpace) => {
                self.shared.totals.lock().refused_full += 1;
                Ok(())
            }
            Err(error) => self.failed("unmap", volume, error),
        }
    }

    async fn change_catalog(&mut self) -> Result<(), String> {
        let count = self.rng.random_range(1..=4);
        let changes = (0..count).map(|_| self.change_object()).collect();
        self.commit(changes).await.map(|_| ())
    }

    fn change_object(&mut self) -> Change {
        let rng = &mut self.rng;
        let kind = OBJECT_KINDS[rng.random_range(0..2)];
        let key = format!("object-{}", rng.random_range(0..12));
        if rng.random_bool(0.25) {
            return Change::Delete(kind, key);
        }
        let tag: u64 = rng.random();
        let len = log_uniform(rng, 1, 3000) as usize;
        Change::Put(kind, key, format!("{tag:016x}-").into_bytes().repeat(len.div_ceil(17)))
    }

    /// Commits changes of a volume. In a pool with several slices they come with one of an object, which new objects follow to
    /// the volume's slice, and which makes a transaction over several slices if the object is in another one.
    async fn commit_of_volume(&mut self, mut changes: Vec<Change>) -> Result<bool, String> {
        if self.pool.slice_count() > 1 {
            changes.push(self.change_object());
        }
        self.commit(changes).await
    }

    pub(crate) async fn commit(&mut self, changes: Vec<Change>) -> Result<bool, String> {
        let (id, tx) = self.shared.model.lock().catalog.begin(changes)?;
        let outcome = self.pool.commit(tx).await;
        // A volume that was to be forked may have been deleted meanwhile.
        if let Err(PoolError::NoSuchVolume(volume)) = outcome
            && self.shared.model.lock().deleting.contains(&volume)
        {
            self.shared.model.lock().catalog.refused(id);
            return Ok(false);
        }
        let cannot_reserve = matches!(outcome, Err(PoolError::CannotReserve { .. }));
        // Few ids of layers may all be in use.
        let has_no_ids =
            matches!(&outcome, Err(PoolError::Refused(why)) if why.contains("tell more volumes"));
        if cannot_reserve || has_no_ids {
            self.shared.model.lock().catalog.refused(id);
            self.shared.totals.lock().refused_reservations += u64::from(cannot_reserve);
            return Ok(false);
        }
        self.shared.model.lock().catalog.end(id, outcome.is_ok());
        match outcome {
            Ok(()) => {
                self.shared.totals.lock().transactions += 1;
                Ok(true)
            }
            Err(error) => self.shared.excuse(&self.pool, "commit", &error).map(|()| false),
        }
    }

    pub(crate) async fn change_volumes(&mut self) -> Result<(), String> {
        let volumes: Vec<_> = {
            let model = self.shared.model.lock();
            let is_free = |v: &VolumeId| !model.deleting.contains(v) && !model.cutting.contains(v);
            model.usable_volumes().filter(is_free).collect()
        };
        if volumes.len() < MAX_VOLUMES && (volumes.len() < 2 || self.rng.random()) {
            return self.create_volume().await;
        }
        let victim = volumes[self.rng.random_range(0..volumes.len())];
        if self.rng.random_bool(0.4) {
            self.change_reservation(victim).await
        } else {
            self.delete_volume(victim).await
        }
    }

    /// Creates a volume together with its object in the catalog.
    pub(crate) async fn create_volume(&mut self) -> Result<(), String> {
        let volume = self.new_volume_id();
        let windows = windows(&mut self.rng, self.shared.load);
        self.shared.model.lock().history.add_volume(volume.0, &windows);
        let value = format!("{{\"id\":{}}}", volume.0).into_bytes();
        let changes = vec![Change::Create(volume), Change::Put(OBJECT_KINDS[2], volume_key(volume), value)];
        if self.commit_of_volume(changes).await? {
            self.shared.totals.lock().volumes_created += 1;
            if self.rng.random_bool(0.3) {
                self.change_reservation(volume).await?;
            }
        }
        Ok(())
    }

    /// Promises a volume the space of all its windows, or takes that back.
    async fn change_reservation(&mut self, volume: VolumeId) -> Result<(), String> {
        let bytes = {
            let model = self.shared.model.lock();
            let Some((before, _)) = model.catalog.reserved(volume) else { return Ok(()) };
            // A window may begin and end within a block.
            let blocks = |w: &Window| u64::from(w.sectors).div_ceil(16) + 1;
            let all: u64 = model.history.windows(volume.0).iter().map(blocks).sum();
            if before > 0 { 0 } else { all * 8192 }
        };
        if self.commit(vec![Change::Reserve(volume, bytes)]).await? {
            self.shared.totals.lock().reservations += 1;
        }
        Ok(())
    }

    /// Empties a volume from some place on, while others try to write there.
    async fn cut_tail(&mut self) -> Result<(), String> {
        let Some(target) = self.target() else { return Ok(()) };
        let (volume, from) = (target.volume, target.at.first + u64::from(target.first));
        let zeroed: Vec<_> = {
            let mut model = self.shared.model.lock();
            if !model.cutting.insert(volume) {
                return Ok(());
            }
            let windows = model.history.windows(volume.0);
            let tails = windows.iter().enumerate().filter_map(|(window, w)| {
                let first = from.saturating_sub(w.first).min(u64::from(w.sectors)) as u32;
                (first < w.sectors).then_some((window, first, w.sectors - first))
            });
            tails.collect()
        };
        let outcome = self.empty(volume, from * SECTOR_BYTES, zeroed).await;
        self.shared.model.lock().cutting.remove(&volume);
        match outcome {
            // A node that leads to more than a leaf stays when it is damaged.
            Ok(true) if self.shared.damaged => Ok(()),
            Ok(true) => {
                Err(format!("volume {volume} is mapped behind sector {from}, where it was just emptied"))
            }
            Ok(false) => {
                self.shared.totals.lock().cut_tails += 1;
                Ok(())
            }
            Err(error) => self.failed("cut", volume, error),
        }
    }

    /// Whether anything is mapped there afterwards.
    async fn empty(
        &self,
        volume: VolumeId,
        from: u64,
        zeroed: Vec<(usize, u32, u32)>,
    ) -> Result<bool, PoolError> {
        let pool = &self.pool;
        pool.end_volume(volume, from)?;
        let begin = |(window, first, sectors): (usize, u32, u32)| {
            self.shared.model.lock().history.begin(volume.0, window, first, sectors, true)
        };
        let ids: Vec<_> = zeroed.into_iter().map(begin).collect();
        let outcome = pool.unmap_from(volume, from).await;
        ids.into_iter().for_each(|id| self.shared.model.lock().history.end(id, outcome.is_ok()));
        outcome?;
        let mapped = pool.is_mapped_from(volume, from).await?;
        pool.end_volume(volume, u64::MAX)?;
        Ok(mapped)
    }

    pub(crate) async fn delete_volume(&mut self, volume: VolumeId) -> Result<(), String> {
        self.shared.model.lock().deleting.insert(volume);
        let changes = vec![Change::DeleteVolume(volume), Change::Delete(OBJECT_KINDS[2], volume_key(volume))];
        if self.commit_of_volume(changes).await? {
            let mut model = self.shared.model.lock();
            model.history.volume_deleted(volume.0);
            model.hidden.remove(&volume);
            drop(model);
            self.shared.totals.lock().volumes_deleted += 1;
        }
        Ok(())
    }

    async fn ask(&mut self, what: &str) -> Result<(), String> {
        let outcome = match what {
            "drain" => self.pool.drain().await,
            _ => self.pool.checkpoint().await,
        };
        outcome.or_else(|error| self.shared.excuse(&self.pool, what, &error))
    }
}

/// A window and all on both sides of it that is in no other: terabytes, nearly all of them never written.
fn around(windows: &[Window], at: Window) -> ByteRange {
    let end = |w: &Window| w.first + u64::from(w.sectors);
    let from = windows.iter().map(end).filter(|end| *end <= at.first).max().unwrap_or(0);
    let to = windows.iter().map(|w| w.first).filter(|first| *first >= end(&at)).min();
    let to = to.unwrap_or(VOLUME_END / SECTOR_BYTES);
    ByteRange::new(from * SECTOR_BYTES, (to - from) * SECTOR_BYTES)
}

/// Reads a range and compares it with the model: a violation, or how the read ended.
pub(crate) async fn read(
    shared: &Shared,
    pool: &Pool,
    volume: VolumeId,
    window: usize,
    first: u32,
    sectors: u32,
) -> Result<Result<(), PoolError>, String> {
    let (begun, base) = {
        let mut model = shared.model.lock();
        (model.history.begin_read(), model.history.windows(volume.0)[window].first)
    };
    let offset = (base + u64::from(first)) * SECTOR_BYTES;
    let len = u64::from(sectors) * SECTOR_BYTES;
    match pool.read(volume, ByteRange::new(offset, len)).await {
        Ok(slices) => {
            let got: u64 = slices.iter().map(|s| s.len() as u64).sum();
            if got != len {
                return Err(format!("a read of {len} bytes returned {got}"));
            }
            let mut totals = shared.totals.lock();
            totals.reads += 1;
            totals.read_bytes += len;
            let bytes = slices.iter().map(|s| &s[..]);
            let mut model = shared.model.lock();
            model.history.read_returned(begun, volume.0, window, first, bytes)?;
            if matches!(shared.boot.ending, Ending::Seen(n) if model.history.seen_in_flight() >= n) {
                shared.world.cut_power_now();
            }
            Ok(Ok(()))
        }
        Err(error) => {
            shared.model.lock().history.read_failed(begun);
            shared.totals.lock().failed_reads += 1;
            Ok(Err(error))
        }
    }
}
