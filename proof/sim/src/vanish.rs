//! Drives that vanish while clients use the pool, and come back with what they held: soon, late, after a restart, or never.
//!
//! Never more of them are away than the pool says it tolerates. So hosts see no error, and the pool stays online.

use crate::{client::Shared, scenario::log_uniform};
use quoin_base::DriveIndex;
use quoin_drive::{DriveWatch, MemberState};
use quoin_pool::{Pool, PoolError, PoolState};
use quoin_world::{Thread, World};
use quoin_world_sim::SimDisk;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// A disk, and its watch.
type Watched = (Arc<SimDisk>, Arc<DriveWatch>);

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
            if self.rng.random_bool(0.5) {
                self.bring_one_back().await?;
            } else if self.shared.boot.faulty {
                self.take_one_away();
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed) || matches!(self.pool.state(), PoolState::Offline { .. })
    }

    fn state(&self, drive: usize) -> Option<MemberState> {
        self.pool.members().get(DriveIndex(drive as u16)).map(|member| member.state)
    }

    /// A drive vanishes, if as many failures are tolerated beside those that the pool has not noticed yet.
    fn take_one_away(&mut self) {
        // One that failed an operation is given up soon, whether it is there again or not.
        let has_failed =
            |drive: usize| self.pool.drive(DriveIndex(drive as u16)).is_some_and(|drive| drive.is_failed());
        let is_lost = |drive: &usize| self.away.contains(drive) || has_failed(*drive);
        let counted = |drive: &usize| self.state(*drive) == Some(MemberState::Active);
        let unnoticed = (0..self.drives.len()).filter(|drive| counted(drive) && is_lost(drive)).count();
        let lost = unnoticed + (0..self.drives.len()).filter(|drive| !counted(drive)).count();
        if usize::from(self.pool.protection().tolerates) <= unnoticed || lost >= self.most_lost {
            return;
        }
        let there: Vec<_> =
            (0..self.drives.len()).filter(|drive| counted(drive) && !is_lost(drive)).collect();
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
            Err(error) => self.excuse("taking a drive back", &error),
        }
    }

    fn excuse(&self, doing: &str, error: &PoolError) -> Result<(), String> {
        match error {
            // It was closed in between.
            PoolError::Offline { .. } if self.is_over() => Ok(()),
            error => self.shared.excuse(&self.pool, doing, error),
        }
    }
}
