//! Drives that die, and those that hang.

use crate::{boot::BootRun, choices::Faults, client::Shared};
use quoin_drive::{MemberState, Probe, probe};
use quoin_pool::{Pool, PoolError, PoolState};
use quoin_world::{Disk, Thread, World};
use rand::RngExt;
use std::{sync::Arc, time::Duration};

/// How long a drive is dead at least that the pool waits for.
const WORKS_AGAIN_AFTER: Duration = Duration::from_millis(200);

impl BootRun {
    /// One dies a while after the pool was opened. If the pool waits for it, it works again later.
    pub(crate) fn let_a_drive_die(&mut self, pool: &Arc<Pool>) {
        if self.faults != Faults::Death || !self.shared.may_fail {
            return;
        }
        let spare = self.spare.as_ref().map(|(disk, _)| disk);
        let disks: Vec<_> = self.disks.iter().chain(spare).collect();
        let disk = disks[self.rng.random_range(0..disks.len())].clone();
        let after = Duration::from_micros(self.rng.random_range(100..60_000));
        let (shared, pool, admitted) = (self.shared.clone(), pool.clone(), self.admitted.clone());
        let world = self.shared.world.clone();
        self.shared.world.spawn(
            Thread::Background,
            Box::pin(async move {
                world.sleep(after).await;
                disk.fail();
                while !matches!(pool.state(), PoolState::Offline { .. }) {
                    world.sleep(WORKS_AGAIN_AFTER).await;
                    if !is_any_absent(&pool) {
                        continue;
                    }
                    disk.revive();
                    if let Err(violation) = take_back(&shared, &pool, &admitted).await {
                        shared.violated(violation);
                    }
                }
            }),
        );
    }

    /// It hangs once for a while, now and then twice. What is stuck then takes effect one by one.
    pub(crate) fn let_a_drive_hang(&mut self) {
        if self.faults != Faults::Hang || !self.shared.may_fail {
            return;
        }
        let disk = self.disks[self.rng.random_range(0..self.disks.len())].clone();
        let world = self.shared.world.clone();
        let times = if self.rng.random_bool(0.2) { 2 } else { 1 };
        let pauses: Vec<_> = (0..times)
            .map(|_| {
                let mut pause = |least: u64, most: u64| {
                    let exponent = self.rng.random_range((least as f64).ln()..(most as f64).ln());
                    Duration::from_micros(exponent.exp() as u64)
                };
                (pause(100, 60_000), pause(1_000, 6_000_000), pause(1_000, 6_000_000))
            })
            .collect();
        self.shared.world.spawn(
            Thread::Background,
            Box::pin(async move {
                for (after, hangs, within) in pauses {
                    world.sleep(after).await;
                    disk.hang();
                    world.sleep(hangs).await;
                    disk.resume(within);
                }
            }),
        );
    }

    /// Drives that died when they held the last copy of something are absent, and work again.
    pub(crate) async fn take_back_dead(&self, pool: &Pool) -> Result<(), String> {
        if self.faults == Faults::Death {
            take_back(&self.shared, pool, &self.admitted).await
        } else {
            Ok(())
        }
    }
}

fn is_any_absent(pool: &Pool) -> bool {
    pool.members().all.iter().any(|member| member.state == MemberState::Absent)
}

async fn take_back(shared: &Shared, pool: &Pool, admitted: &[Arc<dyn Disk>]) -> Result<(), String> {
    let is_absent = |index| pool.members().get(index).is_some_and(|m| m.state == MemberState::Absent);
    for disk in admitted {
        let index = match probe(disk).await {
            Ok(Probe::Quoin(label)) => label.index,
            _ => continue,
        };
        if !is_absent(index) {
            continue;
        }
        let taken = if pool.is_lent(index) {
            pool.finish_taking_back(index).await.map(|_| index)
        } else {
            pool.take_back(disk.clone()).await
        };
        match taken {
            Ok(_) => shared.totals.lock().returned_drives += 1,
            // It waits for others, or died again.
            Err(PoolError::Refused(_) | PoolError::Drive(_)) => {}
            Err(error) => shared.excuse(pool, "taking a drive back", &error)?,
        }
    }
    Ok(())
}
