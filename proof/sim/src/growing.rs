//! Drives that become longer while clients use the pool, by a few slabs or by so many that new grant pages are needed, and cut off
//! at any moment.

use crate::{
    Choices,
    client::Shared,
    scenario::{Scenario, log_uniform},
};
use quoin_base::DriveIndex;
use quoin_drive::{MemberState, SLABS_PER_GRANT_PAGE, slabs_start};
use quoin_pool::{DriveLen, Pool, PoolError, PoolState};
use quoin_world::{Disk, Thread, World};
use quoin_world_sim::SimDisk;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How often drives grow in a boot at the most: a pool that is to be full must become full.
const MOST_TIMES: u32 = 4;
/// The most slabs that a drive grows by at once.
const MOST_SLABS: u64 = 8;

/// Whether drives become longer in a seed.
pub(crate) fn is_chosen(seed: u64, choices: Choices) -> bool {
    choices.growing || seed % 16 == 6
}

/// In every other seed where drives grow they begin with about as many slabs as a grant page tells of.
pub(crate) fn enlarge(seed: u64, scenario: &mut Scenario) {
    if !(seed ^ seed >> 4).is_multiple_of(2) {
        return;
    }
    let slab_bytes = scenario.format.slab_bytes;
    for (len_bytes, _) in &mut scenario.drives {
        let data_bytes = len_bytes.saturating_sub(slabs_start(*len_bytes, slab_bytes));
        let slabs = data_bytes / u64::from(slab_bytes);
        let wanted = u64::from(SLABS_PER_GRANT_PAGE) - seed % MOST_SLABS;
        *len_bytes += wanted.saturating_sub(slabs) * u64::from(slab_bytes);
    }
}

/// Who has drives grow.
struct Grower {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    disks: Vec<Arc<SimDisk>>,
    rng: ChaCha8Rng,
}

/// Has drives of the pool grow until it is closed, in boots of which `number` tells what is random.
pub(crate) fn spawn(shared: &Arc<Shared>, pool: &Arc<Pool>, disks: Vec<Arc<SimDisk>>, number: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(number);
    rng.set_stream(93);
    let grower = Grower { shared: shared.clone(), pool: pool.clone(), disks, rng };
    let world = shared.world.clone();
    world.spawn(
        Thread::Background,
        Box::pin(async move {
            let shared = grower.shared.clone();
            if let Err(violation) = grower.run().await {
                shared.violated(violation);
            }
        }),
    );
}

impl Grower {
    async fn run(mut self) -> Result<(), String> {
        for _ in 0..self.rng.random_range(1..=MOST_TIMES) {
            self.pause(30_000).await;
            if self.is_over() {
                break;
            }
            let drives: Vec<_> = (0..self.rng.random_range(1..=3)).filter_map(|_| self.choose()).collect();
            self.grow(&drives).await?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed) || matches!(self.pool.state(), PoolState::Offline { .. })
    }

    async fn pause(&mut self, most_micros: u64) {
        let micros = log_uniform(&mut self.rng, 10, most_micros);
        self.shared.world.sleep(Duration::from_micros(micros)).await;
    }

    fn choose(&mut self) -> Option<DriveIndex> {
        let members = self.pool.members();
        let there: Vec<_> = members.all.iter().filter(|member| member.state != MemberState::Gone).collect();
        (!there.is_empty()).then(|| there[self.rng.random_range(0..there.len())].index)
    }

    /// Makes the disks of drives longer, and perhaps a while later the drives. What was cut off before that is made up for.
    async fn grow(&mut self, drives: &[DriveIndex]) -> Result<(), String> {
        let mut wanted = Vec::new();
        for index in drives {
            let slabs = self.rng.random_range(1..=MOST_SLABS);
            let Some(drive) = self.pool.drive(*index) else { continue };
            let Some(disk) = self.disks.iter().find(|disk| disk.name() == drive.name()) else { continue };
            let label = drive.label();
            let len_bytes = label.len_bytes + slabs * u64::from(label.slab_bytes);
            disk.lengthen(len_bytes.max(disk.len_bytes()));
            wanted.push(DriveLen { drive: *index, len_bytes });
        }
        if self.rng.random_bool(0.5) {
            self.pause(5_000).await;
        }
        let (grown, outcome) = self.pool.grow_drives(&wanted).await;
        {
            let mut totals = self.shared.totals.lock();
            totals.grown_drives += grown.len() as u64;
            totals.grown_slabs +=
                grown.iter().map(|one| u64::from(one.after.slabs - one.before.slabs)).sum::<u64>();
        }
        match outcome {
            // It failed, is away or leaves; or the pool was closed in between.
            Ok(()) | Err(PoolError::Refused(_) | PoolError::Offline { .. }) => Ok(()),
            Err(error) => self.shared.excuse(&self.pool, "growing a drive", &error),
        }
    }
}
