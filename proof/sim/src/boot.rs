//! One boot: the pool is opened, compared with the model, put under load, and closed, unless it is cut off.

use crate::{
    choices::Faults,
    client::{Client, Shared, read},
    growing, leaving,
    model::{Change, OBJECT_KINDS, volume_key},
    policies,
    scenario::Ending,
    vanish,
};
use parking_lot::Mutex;
use quoin_base::VolumeId;
use quoin_drive::{
    DriveSet, DriveWatch, LABEL_BYTES, LABEL_OFFSETS, Label, MemberState, inspect_set, open_set,
};
use quoin_pool::{
    CheckReport, Hedging, Pool, PoolError, PoolOptions, PoolState, Scrub, ScrubCounts, ScrubPosition, check,
};
use quoin_world::{Disk, Event, Thread, World};
use quoin_world_sim::SimDisk;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeSet,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Sectors of one verifying read.
const READ_SECTORS: u32 = 256;
/// How often it is tried to open a pool with a drive that hangs, and how long after each other.
const OPENINGS: u32 = 200;
const OPENED_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Reads of a column are late after so long, as many of a drive are, and so many are made from the other columns too.
const LATE_AFTER: Duration = Duration::from_micros(150);
const EXTRA_READS: usize = 1000;
/// How often the space of deleted volumes is waited for.
const PATIENCE: u32 = 100;

/// How a boot that was not cut off ended.
#[derive(Debug)]
pub(crate) enum End {
    Closed,
    /// It went offline, as it may.
    Offline,
    /// It could not be opened, as may be.
    NotOpened(String),
    Violated(String),
}

/// What a boot needs.
pub(crate) struct BootRun {
    pub shared: Arc<Shared>,
    pub disks: Vec<Arc<SimDisk>>,
    pub watches: Vec<Arc<DriveWatch>>,
    /// A disk that is added while the pool serves, unless it was in an earlier boot.
    pub spare: Option<(Arc<SimDisk>, Arc<DriveWatch>)>,
    /// The disks as they may be used in this boot.
    pub admitted: Vec<Arc<dyn Disk>>,
    pub options: PoolOptions,
    pub rng: ChaCha8Rng,
    pub clients: usize,
    pub faults: Faults,
    /// Set once the pool is open, for its figures.
    pub opened: Arc<Mutex<Option<Arc<Pool>>>>,
    /// The last boot closed the pool, so that nothing is to be replayed.
    pub closed_before: bool,
    /// Drives are absent that the pool waits for.
    pub any_absent: bool,
    pub is_first: bool,
    pub last: bool,
    /// Drives leave in this boot; what is random about that follows from this number.
    pub leaves: Option<u64>,
    /// Drives become longer in this boot, if so as this number tells.
    pub grows: Option<u64>,
    /// Volumes get other layouts, if so as this number tells.
    pub lays_out: Option<u64>,
    /// A fault domain is kept spare.
    pub keeps_spare: bool,
    /// Heads of rows are not found, so that a check finds something.
    pub lacks_rows: bool,
}

/// Drives that nobody uses hold a pool without a fault.
pub(crate) async fn check_pool(disks: Vec<Arc<dyn Disk>>) -> Result<(), String> {
    let drives = inspect_set(disks).await.map_err(|e| e.to_string())?;
    let report = check(drives).await.map_err(|e| format!("the check failed: {e}"))?;
    problems_of(&report)
}

/// What a check found. Root slots are not among it: what was being written there when the power was cut is only noted.
pub fn problems_of(report: &CheckReport) -> Result<(), String> {
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(format!("the check found:\n  {}", problems.join("\n  "))) }
}

/// Whether a problem that a check found is that promises lack room.
fn is_of_promise(problem: &str) -> bool {
    problem.contains("are promised to volumes and not used yet")
}

/// Whether it was made a drive, if perhaps not to the end.
fn has_label(disk: &SimDisk) -> bool {
    let label = |at: u64| Label::in_bytes(disk.peek(at, LABEL_BYTES).as_slice().try_into().ok()?);
    LABEL_OFFSETS.into_iter().any(|at| label(at).is_some())
}

impl BootRun {
    pub(crate) async fn run(mut self) -> End {
        let outcome = self.boot().await;
        if let Some(violation) = self.shared.violation.lock().take() {
            return End::Violated(violation);
        }
        match outcome {
            Ok(end) => end,
            Err(violation) => End::Violated(violation),
        }
    }

    /// Waits until the drives have finished all that was asked of them before.
    async fn admit(&mut self) -> Result<(), String> {
        let mut why = String::new();
        for _ in 0..OPENINGS {
            let disks = self.disks.iter().zip(&self.watches);
            match disks.map(|(disk, watch)| watch.admit(disk.clone())).collect::<Result<Vec<_>, _>>() {
                Ok(admitted) => {
                    self.admitted = admitted;
                    if let Some((spare, watch)) = &self.spare {
                        self.admitted.push(watch.admit(spare.clone()).map_err(|error| error.to_string())?);
                    }
                    return Ok(());
                }
                Err(error) => why = error.to_string(),
            }
            self.shared.world.sleep(OPENED_AGAIN_AFTER).await;
        }
        Err(why)
    }

    async fn boot(&mut self) -> Result<End, String> {
        self.admit().await?;
        let any_away = self.disks.iter().any(|disk| disk.is_away());
        // A check does without what the pool went on without, and finds what cannot be read.
        let is_all_there = !any_away && !self.any_absent && self.faults != Faults::Beyond;
        if self.shared.boot.check && !self.shared.may_fail && !self.shared.spoiled && is_all_there {
            self.check().await?;
        }
        self.let_a_drive_hang();
        let pool = match self.open_perhaps_without(any_away).await? {
            Ok(pool) => pool,
            Err(error) if self.shared.may_fail || self.shared.damaged => {
                return Ok(End::NotOpened(error));
            }
            Err(error) => return Err(format!("the pool cannot be opened: {error}")),
        };
        *self.opened.lock() = Some(pool.clone());
        if self.keeps_spare {
            self.keep_spare(&pool).await?;
        }
        self.check_recovery(&pool)?;
        self.take_back_dead(&pool).await?;
        self.check_catalog(&pool)?;
        self.let_a_drive_die(&pool);
        self.add_a_drive(&pool);
        self.begin_changes(&pool);
        let volumes: Vec<_> = self.shared.model.lock().catalog.volumes().collect();
        for volume in volumes {
            // In the last boot all of it is read at the end.
            let all = self.shared.boot.read_all && !self.last;
            self.verify(&pool, volume, all).await?;
        }
        if self.shared.boot.ending == Ending::Verified && !self.is_over(&pool) {
            self.shared.world.cut_power_now();
            pending::<()>().await;
        }
        let quiet_phases = match self.shared.boot.ending {
            Ending::Close => self.rng.random_range(1..=2),
            _ => u32::from(self.rng.random_bool(0.3)),
        };
        for _ in 0..quiet_phases {
            self.load(&pool, self.clients).await;
            if self.is_over(&pool) {
                break;
            }
            self.quiet(&pool).await?;
        }
        if self.shared.boot.ending != Ending::Close && !self.is_over(&pool) {
            self.load(&pool, 1).await;
            if !self.is_over(&pool) {
                self.shared.world.cut_power_now();
                pending::<()>().await;
            }
        }
        self.finish(&pool).await
    }

    /// What happens to drives and volumes beside the load.
    fn begin_changes(&mut self, pool: &Arc<Pool>) {
        if let Some(number) = self.leaves {
            leaving::spawn(&self.shared, pool, self.admitted.clone(), number);
        }
        if let Some(number) = self.grows {
            let spare = self.spare.iter().map(|(spare, _)| spare);
            growing::spawn(&self.shared, pool, self.disks.iter().chain(spare).cloned().collect(), number);
        }
        if self.faults.has_drives_vanish() {
            let drives = self.disks.iter().cloned().zip(self.watches.iter().cloned()).collect();
            vanish::spawn(&self.shared, pool, drives, self.rng.random());
        }
        if let Some(number) = self.lays_out {
            policies::spawn(&self.shared, pool, number);
        }
    }

    fn is_over(&self, pool: &Pool) -> bool {
        self.shared.stop.load(Ordering::Relaxed) || matches!(pool.state(), PoolState::Offline { .. })
    }

    /// The disks, those that may be blank only if they are drives: the spare one, and those that left.
    fn drives(&self) -> Vec<Arc<dyn Disk>> {
        let spare = self.spare.iter().map(|(spare, _)| spare);
        let may_be_blank = self.disks.iter().filter(|_| self.leaves.is_some()).chain(spare);
        let is_blank = |disk: &Arc<dyn Disk>| {
            may_be_blank.clone().any(|one| one.name() == disk.name() && !has_label(one))
        };
        self.admitted.iter().filter(|disk| !is_blank(disk)).cloned().collect()
    }

    /// Opens the pool, without the drives that are away if there are any and it can; else with all of them.
    async fn open_perhaps_without(&mut self, any_away: bool) -> Result<Result<Arc<Pool>, String>, String> {
        let opened = self.open_patiently().await?;
        if !any_away {
            return Ok(opened);
        }
        self.shared.totals.lock().openings_without += u64::from(opened.is_ok());
        if opened.is_ok() {
            return Ok(opened);
        }
        // Too few are left to tell whether the others went on without them.
        self.disks.iter().for_each(|disk| disk.revive());
        self.admit().await?;
        self.open_patiently().await
    }

    /// Opens the pool, again and again while a drive may hang; the last failure if that does not help.
    async fn open_patiently(&mut self) -> Result<Result<Arc<Pool>, String>, String> {
        let mut opened = self.open().await;
        for _ in 0..OPENINGS {
            if self.faults != Faults::Hang || opened.is_ok() {
                break;
            }
            self.shared.world.sleep(OPENED_AGAIN_AFTER).await;
            self.admit().await?;
            opened = self.open().await;
        }
        Ok(opened)
    }

    /// Counts what was replayed: nothing, if the pool was closed.
    fn check_recovery(&self, pool: &Pool) -> Result<(), String> {
        let recovery = pool.recovery();
        {
            let mut totals = self.shared.totals.lock();
            totals.replayed_records += recovery.replayed_records;
            totals.torn_batches += recovery.torn_batches;
        }
        // What a drive could not read below a partial write stays in the journal.
        let may_keep = matches!(self.faults, Faults::Errors | Faults::Beyond);
        if self.closed_before && !may_keep && recovery.replayed_records > 0 {
            return Err(format!("the pool was closed, yet {recovery:?}"));
        }
        Ok(())
    }

    async fn open(&self) -> Result<Arc<Pool>, String> {
        let drives = match self.faults {
            faults if faults.has_drives_vanish() => {
                DriveSet::open_some(self.drives()).await.map(|set| set.drives)
            }
            _ => open_set(self.drives()).await,
        };
        let drives = drives.map_err(|e| e.to_string())?;
        let world = self.shared.world.clone();
        let pool = Pool::open(world, drives, self.options.clone()).await.map_err(|e| e.to_string())?;
        pool.set_hedging(Hedging { late_after: Some(LATE_AFTER), extra_reads: EXTRA_READS });
        Ok(pool)
    }

    /// Keeps a fault domain spare: there is room for it in the first boot, and was admitted with regard to it later.
    async fn keep_spare(&self, pool: &Pool) -> Result<(), String> {
        if self.is_first {
            let kept = pool.set_spare(1).await;
            return kept.map_err(|error| format!("no spare domain in an empty pool: {error}"));
        }
        pool.restore_spare(1);
        Ok(())
    }

    async fn check(&self) -> Result<(), String> {
        self.shared.totals.lock().checks += 1;
        match check_pool(self.drives()).await {
            // What is promised may lack room after more drives were away than are tolerated.
            Err(found) if self.faults == Faults::Beyond && found.lines().skip(1).all(is_of_promise) => Ok(()),
            checked => checked,
        }
    }

    fn check_catalog(&self, pool: &Pool) -> Result<(), String> {
        let mut model = self.shared.model.lock();
        let applied = model.catalog.check(pool)?;
        model.deleting.clear();
        model.cutting.clear();
        model.forking.clear();
        model.copying.clear();
        let there: BTreeSet<_> = model.catalog.volumes().collect();
        model.hidden.retain(|volume| there.contains(volume));
        self.shared.totals.lock().doubtful_transactions += u64::from(applied);
        Ok(())
    }

    /// Reads all of a volume, or what is in doubt and some of the rest.
    async fn verify(&mut self, pool: &Pool, volume: VolumeId, all: bool) -> Result<(), String> {
        let mut ranges = Vec::new();
        {
            let model = self.shared.model.lock();
            if self.shared.boot.read_doubtful {
                ranges.extend(model.history.uncertain(volume.0));
            }
            for (window, at) in model.history.windows(volume.0).iter().enumerate() {
                for first in (0..at.sectors).step_by(READ_SECTORS as usize) {
                    if all || self.rng.random_bool(0.1) {
                        ranges.push((window, first, READ_SECTORS.min(at.sectors - first)));
                    }
                }
            }
        }
        for (window, first, sectors) in ranges {
            if self.is_over(pool) {
                break;
            }
            match read(&self.shared, pool, volume, window, first, sectors).await? {
                Ok(()) | Err(PoolError::NoSuchVolume(_)) => {}
                Err(error) => self.shared.excuse(pool, "read", &error)?,
            }
        }
        Ok(())
    }

    /// Runs the clients until so many of them are done, or one met a violation.
    async fn load(&mut self, pool: &Arc<Pool>, done: usize) {
        let ended = Arc::new((AtomicUsize::new(0), Event::new()));
        for client in 0..self.clients {
            let task = Client {
                shared: self.shared.clone(),
                pool: pool.clone(),
                rng: ChaCha8Rng::seed_from_u64(self.rng.random()),
                cursor: self.rng.random_range(0..1024),
                number: client,
            };
            let ended = ended.clone();
            let thread = Thread::Data(client % self.shared.world.data_threads());
            self.shared.world.spawn(
                thread,
                Box::pin(async move {
                    task.run().await;
                    ended.0.fetch_add(1, Ordering::Relaxed);
                    ended.1.notify();
                }),
            );
        }
        // After a violation or failure all of them stop; then they are waited for.
        let wanted = |count: usize| if self.is_over(pool) { count >= self.clients } else { count >= done };
        ended.1.until(|| wanted(ended.0.load(Ordering::Relaxed)).then_some(())).await;
    }

    /// Nothing is under way: what the pool says about itself must be so.
    async fn quiet(&mut self, pool: &Pool) -> Result<(), String> {
        self.check_catalog(pool)?;
        if self.shared.may_fail || self.shared.damaged || self.shared.is_beyond() || self.rng.random_bool(0.3)
        {
            return Ok(());
        }
        self.check_space(pool).await
    }

    /// After a drain, what is mapped and live is what the model says (I7).
    async fn check_space(&self, pool: &Pool) -> Result<(), String> {
        let volumes: Vec<_> = self.shared.model.lock().catalog.volumes().collect();
        for &volume in &volumes {
            let uncertain = self.shared.model.lock().history.uncertain(volume.0);
            for (window, first, sectors) in uncertain {
                let outcome = read(&self.shared, pool, volume, window, first, sectors).await?;
                outcome.map_err(|e| format!("read failed: {e}"))?;
            }
        }
        let mut live_bytes = 0;
        for patience in (0..PATIENCE).rev() {
            match pool.drain().await {
                Err(PoolError::NoSpace) if pool.is_short_of_slabs() => return Ok(()),
                drained => drained.map_err(|e| format!("drain failed: {e}"))?,
            }
            let mut mapped_bytes = 0;
            for &volume in &volumes {
                let stats = pool.volume_stats(volume).ok_or_else(|| format!("volume {volume} is gone"))?;
                mapped_bytes += stats.mapped_bytes;
                let expected = self.shared.model.lock().history.mapped_blocks(volume.0);
                if expected.is_some_and(|blocks| blocks * 8192 != stats.mapped_bytes) {
                    return Err(format!(
                        "volume {volume} maps {} blocks, {expected:?} are not zero",
                        stats.mapped_bytes / 8192
                    ));
                }
            }
            let stats = pool.stats();
            if stats.buffered_bytes > 0 {
                return Err(format!("{} bytes are buffered after a drain", stats.buffered_bytes));
            }
            live_bytes = stats.stored_blocks * 8192;
            if stats.live_bytes > live_bytes || (stats.live_bytes > 0) != (live_bytes > 0) {
                return Err(format!("{} bytes are {} blocks", stats.live_bytes, stats.stored_blocks));
            }
            let owned = |id: &VolumeId| pool.volume_stats(*id).map_or(0, |stats| stats.owned_bytes);
            let owned_bytes =
                volumes.iter().map(owned).sum::<u64>() + stats.shared_bytes + stats.removing_bytes;
            let copied_bytes = pool.space().copied_bytes;
            let is_owned = live_bytes + copied_bytes == owned_bytes;
            // What the cleaner is moving is live twice for a while.
            if !is_owned && patience == 0 {
                return Err(format!("{live_bytes} bytes are live, {owned_bytes} are owned: {stats:?}"));
            }
            let is_done = is_owned
                && pool.being_removed().is_empty()
                && stats.sifting_entries + stats.joining_layers == 0;
            if is_done && (live_bytes + copied_bytes == mapped_bytes || stats.shared_bytes > 0) {
                self.shared.totals.lock().space_checks += 1;
                return Ok(());
            }
            if patience == 0 {
                return Err(format!("{live_bytes} bytes are live, {mapped_bytes} are mapped: {stats:?}"));
            }
            self.shared.world.sleep(Duration::from_millis(20)).await;
        }
        Err(format!("the space of deleted volumes does not come back: {live_bytes} bytes are live"))
    }

    /// Deletes volumes in any order, all or nearly all: each gives back what it said it would, and in the end nothing is
    /// left.
    async fn delete_all(&mut self, pool: &Pool) -> Result<(), String> {
        let mut volumes: Vec<_> = self.shared.model.lock().catalog.volumes().collect();
        let stays = usize::from(self.rng.random_bool(0.3));
        while volumes.len() > stays {
            let volume = volumes.swap_remove(self.rng.random_range(0..volumes.len()));
            let (before, copied) = (pool.stats().stored_blocks * 8192, pool.space().copied_bytes);
            let freed = pool.volume_stats(volume).ok_or("a volume is gone")?.freed_by_delete_bytes;
            let changes =
                vec![Change::DeleteVolume(volume), Change::Delete(OBJECT_KINDS[2], volume_key(volume))];
            let (id, tx) = self.shared.model.lock().catalog.begin(changes)?;
            pool.commit(tx).await.map_err(|e| format!("deletion failed: {e}"))?;
            {
                let mut model = self.shared.model.lock();
                model.catalog.end(id, true);
                model.history.volume_deleted(volume.0);
            }
            self.check_space(pool).await?;
            let after = pool.stats().stored_blocks * 8192;
            // Of what range copies have too, it need not be told how much stays.
            if before - after < freed || before - after > freed && copied == 0 {
                return Err(format!(
                    "deleting volume {volume} gave back {} bytes instead of {freed}",
                    before - after
                ));
            }
        }
        for volume in volumes {
            self.verify(pool, volume, true).await?;
        }
        Ok(())
    }

    /// Adds the disk that there is for that, some time later.
    fn add_a_drive(&mut self, pool: &Arc<Pool>) {
        if self.spare.is_none() || pool.members().next_index as usize > self.disks.len() {
            return;
        }
        let Some(disk) = self.admitted.last().cloned() else { return };
        let after = Duration::from_micros(self.rng.random_range(0..40_000));
        let (shared, pool) = (self.shared.clone(), pool.clone());
        let adding = async move {
            shared.world.sleep(after).await;
            match pool.add_drive(&*shared.world, disk, String::new()).await {
                Ok(_) => shared.totals.lock().added_drives += 1,
                // It was closed in between.
                Err(PoolError::Offline { .. }) => {}
                Err(error) => {
                    if let Err(violation) = shared.excuse(&pool, "adding a drive", &error) {
                        shared.violated(violation);
                    }
                }
            }
        };
        self.shared.world.spawn(Thread::Background, Box::pin(adding));
    }

    /// A scrub repairs all that redundancy makes up for, and the next one has nothing left to repair.
    async fn repair_all(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        for is_first in [true, false] {
            let scrub = Scrub::new(pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 0);
            scrub.run().await.map_err(|error| format!("the closing scrub failed: {error}"))?;
            let (_, counts) = scrub.progress();
            let repaired = counts.repaired.total();
            // The head of a row that a drive lost may be that of an earlier row: the rows behind it are not found then.
            let damaged =
                counts.damage() - if self.faults == Faults::Silent { counts.damaged_rows } else { 0 };
            let lacks_rows = counts.damaged_rows > 0;
            let left = damaged + counts.failed_reads + if is_first || lacks_rows { 0 } else { repaired };
            // Of a segment with such heads perhaps nothing names all that is live: the scrub says so.
            let stays = scrub.notes().iter().any(|note| note.contains("stays as it is"));
            self.lacks_rows |= lacks_rows || stays && self.faults == Faults::Silent;
            if left > 0 {
                return Err(format!("the closing scrub found {counts:?} {:?}", scrub.notes()));
            }
            // Pages of metadata are written anew by it.
            pool.checkpoint().await.map_err(|error| format!("the checkpoint after it failed: {error}"))?;
        }
        Ok(())
    }

    async fn finish(&mut self, pool: &Arc<Pool>) -> Result<End, String> {
        let violated = self.shared.violation.lock().is_some();
        policies::end(&self.shared).await;
        if self.last && !violated && !self.is_over(pool) {
            vanish::until_all_is_back(&self.shared, pool).await?;
            let volumes: Vec<_> = self.shared.model.lock().catalog.volumes().collect();
            for volume in volumes {
                self.verify(pool, volume, true).await?;
            }
            if self.shared.spoiled && !self.shared.damaged {
                self.repair_all(pool).await?;
            }
            if self.lays_out.is_some() && !self.shared.damaged && !self.shared.spoiled {
                policies::check(&self.shared, pool).await?;
            }
            // Without slabs it is not destaged.
            if !self.shared.damaged && !pool.is_short_of_slabs() {
                self.check_space(pool).await?;
                if self.rng.random_bool(0.5) {
                    self.delete_all(pool).await?;
                }
            }
        }
        let closed = pool.close().await;
        match closed {
            _ if violated => Ok(End::Closed),
            Ok(()) => {
                let is_all_there = pool.members().all.iter().all(|m| m.state != MemberState::Absent);
                if self.last && !self.shared.damaged && !self.lacks_rows && is_all_there {
                    self.check().await?;
                }
                Ok(End::Closed)
            }
            Err(error) => {
                self.shared.excuse(pool, "close", &error)?;
                Ok(End::Offline)
            }
        }
    }
}
