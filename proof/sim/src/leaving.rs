//! Drives that leave while clients use the pool, are removed, and come back blank: in any order, with cancellations, and cut
//! off at any moment.

use crate::{client::Shared, scenario::log_uniform};
use quoin_base::DriveIndex;
use quoin_drive::{MemberState, Roles};
use quoin_pool::{Pool, PoolError, PoolState, RebuildRate};
use quoin_world::{Disk, Thread, World};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How often it is looked whether a drive has left.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// Who has drives leave.
struct Leaver {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    disks: Vec<Arc<dyn Disk>>,
    rng: ChaCha8Rng,
}

/// Has drives of the pool leave until it is closed, in boots of which `number` tells what is random.
pub(crate) fn spawn(shared: &Arc<Shared>, pool: &Arc<Pool>, disks: Vec<Arc<dyn Disk>>, number: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(number);
    rng.set_stream(90);
    let leaver = Leaver { shared: shared.clone(), pool: pool.clone(), disks, rng };
    let world = shared.world.clone();
    world.spawn(
        Thread::Background,
        Box::pin(async move {
            let shared = leaver.shared.clone();
            if let Err(violation) = leaver.run().await {
                shared.violated(violation);
            }
        }),
    );
}

impl Leaver {
    async fn run(mut self) -> Result<(), String> {
        self.pool.set_balancing(self.rng.random_bool(0.5));
        let floor_bytes_s = [0, 1 << 20][self.rng.random_range(0..2)];
        let cap_bytes_s = [0, 0, 64 << 20][self.rng.random_range(0..3)];
        self.pool.set_rebuild_rate(RebuildRate { floor_bytes_s, cap_bytes_s });
        while !self.is_over() {
            self.pause(60_000).await;
            if let Some(drive) = self.choose() {
                self.leave(drive).await?;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed) || matches!(self.pool.state(), PoolState::Offline { .. })
    }

    async fn pause(&mut self, most_micros: u64) {
        let micros = log_uniform(&mut self.rng, 100, most_micros);
        self.shared.world.sleep(Duration::from_micros(micros)).await;
    }

    /// A drive that serves, leaves or failed.
    fn choose(&mut self) -> Option<DriveIndex> {
        let members = self.pool.members();
        let there: Vec<_> = members.all.iter().filter(|m| m.state != MemberState::Gone).collect();
        // One that leaves or failed is seen to first.
        let begun: Vec<_> = there.iter().filter(|m| m.state != MemberState::Active).copied().collect();
        let of = if begun.is_empty() || self.rng.random_bool(0.1) { there } else { begun };
        (!of.is_empty()).then(|| of[self.rng.random_range(0..of.len())].index)
    }

    /// Has a drive leave, and removes it or has it stay after all.
    async fn leave(&mut self, drive: DriveIndex) -> Result<(), String> {
        let is_active =
            |pool: &Pool| pool.members().get(drive).is_some_and(|member| member.state == MemberState::Active);
        if is_active(&self.pool) {
            match self.pool.evacuate_drive(drive, self.rng.random_bool(0.5)).await {
                Ok(_) => self.shared.totals.lock().evacuations += 1,
                Err(PoolError::Refused(_)) => {
                    self.shared.totals.lock().refused_evacuations += 1;
                    return Ok(());
                }
                Err(error) => return self.excuse("an evacuation", &error),
            }
        }
        let patience = self.rng.random_range(1..200);
        for _ in 0..patience {
            if self.is_over() {
                return Ok(());
            }
            self.shared.world.sleep(LOOK_EVERY).await;
            // It may have failed meanwhile, and been removed then.
            match self.pool.remove_drive(drive).await {
                Ok(false) => {}
                Ok(true) => return self.removed(drive).await,
                Err(error) => return self.excuse("a removal", &error),
            }
        }
        if self.rng.random_bool(0.5) {
            match self.pool.cancel_evacuation(drive).await {
                Ok(cancelled) => self.shared.totals.lock().cancelled_evacuations += u64::from(cancelled),
                Err(error) => return self.excuse("a cancellation", &error),
            }
        }
        Ok(())
    }

    /// A drive was removed: it may come back as a new one.
    async fn removed(&mut self, drive: DriveIndex) -> Result<(), String> {
        self.shared.totals.lock().removed_drives += 1;
        let name = self.pool.drive(drive).map(|drive| drive.name().to_owned());
        let disk = self.disks.iter().find(|disk| Some(disk.name()) == name.as_deref()).cloned();
        let Some(disk) = disk.filter(|_| self.rng.random_bool(0.8)) else { return Ok(()) };
        self.pause(30_000).await;
        let roles = Roles { journal: self.rng.random_bool(0.6), data: true };
        match self.pool.add_drive_for(&*self.shared.world, disk, String::new(), roles).await {
            Ok(_) => {
                self.shared.totals.lock().added_drives += 1;
                Ok(())
            }
            Err(PoolError::Refused(_)) => Ok(()),
            Err(error) => self.excuse("adding a drive", &error),
        }
    }

    fn excuse(&self, doing: &str, error: &PoolError) -> Result<(), String> {
        match error {
            // It was closed in between.
            PoolError::Offline { .. } => Ok(()),
            // Another one had it leave or stay.
            PoolError::Refused(_) => Ok(()),
            error => self.shared.excuse(&self.pool, doing, error),
        }
    }
}
