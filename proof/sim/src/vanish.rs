//! Drives that vanish while clients use the pool, and come back with what they held: soon, late, after a restart, or never.
//!
//! Never more of them are away than the pool says it tolerates. So hosts see no error, and the pool stays online. In seeds of
//! [`Faults::Beyond`](crate::Faults::Beyond) more of them vanish now and then. Until they are back, blocks that cannot be
//! computed without them fail to be read, or the pool goes offline.

use crate::{client::Shared, scenario::log_uniform};
use parking_lot::Mutex;
use quoin_base::DriveIndex;
use quoin_drive::{DriveWatch, MemberState};
use quoin_pool::{Pool, PoolError, PoolState};
use quoin_world::{Nanos, Thread, World};
use quoin_world_sim::SimDisk;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How often it is looked whether all is back.
const PATIENCE: u32 = 3000;

/// A disk, and its watch.
type Watched = (Arc<SimDisk>, Arc<DriveWatch>);

/// How long after the drives are back a read may fail that began before.
const LONGEST_READ: Duration = Duration::from_millis(500);

/// Whether more drives are away than the pool tolerates.
#[derive(Default)]
pub(crate) struct Beyond {
    is_now: AtomicBool,
    /// When it was over last.
    over: Mutex<Option<Nanos>>,
    /// No drive vanishes any more.
    pub(crate) ends: AtomicBool,
}

impl Beyond {
    /// Whether a read may fail that ends now.
    pub(crate) fn excuses(&self, now: Nanos) -> bool {
        let was = |over: Nanos| now.since(over) < LONGEST_READ;
        self.is_now.load(Ordering::Relaxed) || self.over.lock().is_some_and(was)
    }

    fn is(&self, is_now: bool, now: Nanos) {
        if self.is_now.swap(is_now, Ordering::Relaxed) && !is_now {
            *self.over.lock() = Some(now);
        }
    }
}

/// Waits until all that the pool has can be read, and nothing vanishes any more.
///
/// # Errors
/// It does not come to that.
pub(crate) async fn until_all_is_back(shared: &Shared, pool: &Pool) -> Result<(), String> {
    let Some(beyond) = &shared.beyond else { return Ok(()) };
    beyond.ends.store(true, Ordering::Relaxed);
    for _ in 0..PATIENCE {
        if !beyond.excuses(shared.world.now()) || matches!(pool.state(), PoolState::Offline { .. }) {
            return Ok(());
        }
        shared.world.sleep(Duration::from_millis(20)).await;
    }
    Err(format!("drives are back, and something cannot be read still: {:?}", pool.protection()))
}

/// Who has drives vanish and come back.
struct Vanisher {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    drives: Vec<Watched>,
    /// Those that are away.
    away: BTreeSet<usize>,
    /// The most that may be lost: as many as are kept spare, or as layouts tolerate one after the other.
    most_lost: usize,
    rng: ChaCha8Rng,
}

/// Has drives of the pool vanish, in boots with faults, and come back, until it is closed.
pub(crate) fn spawn(shared: &Arc<Shared>, pool: &Arc<Pool>, drives: Vec<Watched>, seed: u64) {
    let (shared, pool, rng) = (shared.clone(), pool.clone(), ChaCha8Rng::seed_from_u64(seed));
    if let Some(beyond) = &shared.beyond {
        beyond.is(pool.protection().unreadable_segments > 0, shared.world.now());
    }
    let away = (0..drives.len()).filter(|drive| drives[*drive].0.is_away()).collect();
    let most_lost = match pool.spare().domains {
        0 => usize::MAX,
        spare => spare.into(),
    };
    let vanisher = Vanisher { shared, pool, drives, away, most_lost, rng };
    let world = vanisher.shared.world.clone();
    world.spawn(
        Thread::Background,
        Box::pin(async move {
            let shared = vanisher.shared.clone();
            if let Err(violation) = vanisher.run().await {
                shared.violated(violation);
            }
        }),
    );
}

impl Vanisher {
    async fn run(mut self) -> Result<(), String> {
        // Some wait for ever, some hardly at all.
        let delay_ms = [3_600_000, log_uniform(&mut self.rng, 1, 300)][self.rng.random_range(0..2)];
        self.pool.set_repair_delay(Duration::from_millis(delay_ms));
        while !self.is_over() {
            let micros = log_uniform(&mut self.rng, 100, 60_000);
            self.shared.world.sleep(Duration::from_micros(micros)).await;
            let given_up = match self.pool.give_up_absent().await {
                Ok(given_up) => given_up,
                Err(error) => return self.excuse("giving drives up", &error),
            };
            self.shared.totals.lock().given_up_drives += given_up.len() as u64;
            self.note_beyond();
            if self.rng.random_bool(0.5) || self.ends() {
                self.bring_one_back().await?;
            } else if self.shared.boot.faulty {
                self.take_one_away();
            }
        }
        Ok(())
    }

    fn ends(&self) -> bool {
        self.shared.beyond.as_ref().is_some_and(|beyond| beyond.ends.load(Ordering::Relaxed))
    }

    /// Notes whether more drives are away than are tolerated, once they may be back.
    fn note_beyond(&self) {
        let Some(beyond) = &self.shared.beyond else { return };
        let unreadable = self.pool.protection().unreadable_segments;
        let mut totals = self.shared.totals.lock();
        totals.unreadable_segments += unreadable;
        beyond.is(unreadable > 0 || self.unnoticed() > 0, self.shared.world.now());
    }

    fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed) || matches!(self.pool.state(), PoolState::Offline { .. })
    }

    fn state(&self, drive: usize) -> Option<MemberState> {
        self.pool.members().get(DriveIndex(drive as u16)).map(|member| member.state)
    }

    /// A drive vanishes, if as many failures are tolerated beside those that the pool has not noticed yet.
    fn take_one_away(&mut self) {
        let lost = self.unnoticed() + (0..self.drives.len()).filter(|drive| !self.counts(*drive)).count();
        if lost >= self.most_lost {
            return;
        }
        let is_tolerated = usize::from(self.pool.protection().tolerates) > self.unnoticed();
        let Some(beyond) = self.shared.beyond.clone() else {
            if is_tolerated {
                self.take_any_away();
            }
            return;
        };
        // As a rule one after the other, so that the pool can go on.
        let may_go_beyond = self.unnoticed() == 0 && self.rng.random_bool(0.3) || self.rng.random_bool(0.01);
        if is_tolerated || may_go_beyond {
            if !is_tolerated {
                beyond.is(true, self.shared.world.now());
            }
            self.take_any_away();
        }
    }

    /// Whether the pool needs a drive.
    fn counts(&self, drive: usize) -> bool {
        self.state(drive) == Some(MemberState::Active)
    }

    /// Whether a drive is away, or has failed an operation.
    fn is_lost(&self, drive: usize) -> bool {
        let has_failed =
            |drive: usize| self.pool.drive(DriveIndex(drive as u16)).is_some_and(|drive| drive.is_failed());
        self.away.contains(&drive) || has_failed(drive)
    }

    /// Drives that are lost, and the pool has not noticed yet.
    fn unnoticed(&self) -> usize {
        (0..self.drives.len()).filter(|drive| self.counts(*drive) && self.is_lost(*drive)).count()
    }

    fn take_any_away(&mut self) {
        let there: Vec<_> =
            (0..self.drives.len()).filter(|drive| self.counts(*drive) && !self.is_lost(*drive)).collect();
        if !there.is_empty() {
            let drive = there[self.rng.random_range(0..there.len())];
            self.away.insert(drive);
            self.drives[drive].0.vanish();
            self.shared.totals.lock().vanished_drives += 1;
        }
    }

    fn is_absent(&self, drive: usize) -> bool {
        self.state(drive) == Some(MemberState::Absent)
    }

    /// One that is away is there again. The pool takes it back if it went on without it.
    async fn bring_one_back(&mut self) -> Result<(), String> {
        let is_away = |drive: &usize| self.away.contains(drive) || self.is_absent(*drive);
        let away: Vec<_> = (0..self.drives.len()).filter(is_away).collect();
        // What waited for others before may be taken back now.
        for drive in &away {
            match self.pool.finish_taking_back(DriveIndex(*drive as u16)).await {
                Ok(_) | Err(PoolError::Refused(_)) => {}
                Err(error) => return self.excuse("taking a drive back", &error),
            }
        }
        if away.is_empty() {
            return Ok(());
        }
        let drive = away[self.rng.random_range(0..away.len())];
        let (disk, watch) = self.drives[drive].clone();
        disk.revive();
        self.away.remove(&drive);
        if !self.is_absent(drive) {
            return Ok(());
        }
        let Ok(disk) = watch.admit(disk) else { return Ok(()) };
        match self.pool.take_back(disk).await {
            Ok(_) => {
                self.shared.totals.lock().returned_drives += 1;
                Ok(())
            }
            // It is read from, and counts when others are back.
            Err(PoolError::Refused(_)) if self.pool.is_lent(DriveIndex(drive as u16)) => Ok(()),
            Err(error) => self.excuse("taking a drive back", &error),
        }
    }

    fn excuse(&self, doing: &str, error: &PoolError) -> Result<(), String> {
        match error {
            // It was closed in between, or is being closed.
            PoolError::Offline { .. } if self.is_over() => Ok(()),
            PoolError::Offline { reason } if reason == "it was closed" => Ok(()),
            error => self.shared.excuse(&self.pool, doing, error),
        }
    }
}
