//! Volumes that get other layouts while clients use them, at any moment: in any order, cut off by crashes, beside forks,
//! cleaning, drives that leave and rebuilds.
//!
//! What must hold is looked at when all is quiet: what a volume has lies in layouts that tolerate as many failures as its own;
//! and once all have the pool's layout again, nothing lies in any other. There are no range copies in these seeds: what
//! several volumes have by those is not converted.

use crate::{client::Shared, scenario::log_uniform};
use quoin_base::{Layout, VolumeId};
use quoin_pool::{Pool, PoolError, PoolState, Transaction};
use quoin_world::{Thread, World};
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

/// The layouts that volumes get, if the pool can have them.
const LAYOUTS: [&str; 5] = ["mirror", "2+1", "raid5", "mirror-3", "raid6"];
/// How long, in looks, conversions may take when nobody else is at work.
const LOOKS: u32 = 30_000;
/// How often a volume gets another layout in a boot at the most: some boots last long, and each time data is moved.
const MOST_GIVEN: u32 = 300;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether volumes get other layouts.
#[derive(Default)]
pub(crate) struct Policies {
    /// They do, in this seed.
    pub is_on: bool,
    /// They get no more in this boot.
    is_over: AtomicBool,
    /// One gets another layout right now.
    is_busy: AtomicBool,
}

impl Policies {
    /// For a seed in which volumes get other layouts, or not.
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }
}

/// Gives volumes of the pool other layouts until it is closed, in boots of which `number` tells what is random.
pub(crate) fn spawn(shared: &Arc<Shared>, pool: &Arc<Pool>, number: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(number);
    rng.set_stream(91);
    let (own, pool, world) = (shared.clone(), pool.clone(), shared.world.clone());
    world.spawn(
        Thread::Background,
        Box::pin(async move {
            for _ in 0..MOST_GIVEN {
                if is_over(&own, &pool) || own.policies.is_over.load(Ordering::Relaxed) {
                    break;
                }
                let micros = log_uniform(&mut rng, 100, 60_000);
                own.world.sleep(Duration::from_micros(micros)).await;
                let volumes: Vec<_> = own.model.lock().usable_volumes().collect();
                if volumes.is_empty() {
                    continue;
                }
                let volume = volumes[rng.random_range(0..volumes.len())];
                let layout = draw(&pool, &mut rng);
                // NOTE: what is committed while the pool is closed would be found by the next opening.
                if own.policies.is_over.load(Ordering::Relaxed) {
                    break;
                }
                own.policies.is_busy.store(true, Ordering::Relaxed);
                let given = lay_out(&own, &pool, volume, layout).await;
                own.policies.is_busy.store(false, Ordering::Relaxed);
                if let Err(violation) = given {
                    own.violated(violation);
                }
            }
        }),
    );
}

fn is_over(shared: &Shared, pool: &Pool) -> bool {
    shared.stop.load(Ordering::Relaxed) || matches!(pool.state(), PoolState::Offline { .. })
}

/// A layout that the pool can have, with fewer columns where there are too few domains; or its own.
fn draw(pool: &Pool, rng: &mut ChaCha8Rng) -> Option<Layout> {
    let layouts = LAYOUTS.iter().filter_map(|text| text.parse().ok());
    let possible: Vec<Layout> = layouts.filter(|layout| pool.layout_lacks(*layout, true).is_none()).collect();
    let which = rng.random_range(0..=possible.len());
    possible.get(which).copied()
}

async fn lay_out(
    shared: &Shared,
    pool: &Pool,
    volume: VolumeId,
    layout: Option<Layout>,
) -> Result<(), String> {
    match pool.commit(Transaction::new().lay_out(volume, layout)).await {
        Ok(()) => shared.totals.lock().layouts_given += 1,
        // It is deleted meanwhile, or there is no room for what is promised to it.
        Err(PoolError::NoSuchVolume(_) | PoolError::CannotReserve { .. } | PoolError::Refused(_)) => {}
        Err(PoolError::Offline { .. }) => {}
        Err(error) => return shared.excuse(pool, "a layout", &error),
    }
    Ok(())
}

/// Waits until nothing is converted any more. False if that takes too long for want of space, or the pool went offline.
async fn settles(shared: &Shared, pool: &Pool, volumes: &[VolumeId]) -> Result<bool, String> {
    let mut waits = 0;
    for _ in 0..LOOKS {
        let left: Vec<_> = volumes.iter().filter_map(|volume| pool.volume_layout(*volume)).collect();
        let converting: Vec<_> = left.iter().filter(|layout| layout.is_converting).collect();
        if converting.is_empty() {
            return Ok(true);
        }
        waits = if converting.iter().any(|layout| layout.waits_for_space) { waits + 1 } else { 0 };
        if waits > 100 || matches!(pool.state(), PoolState::Offline { .. }) {
            return Ok(false);
        }
        shared.world.sleep(LOOK_EVERY).await;
    }
    let left: Vec<_> = volumes.iter().map(|volume| (volume, pool.volume_layout(*volume))).collect();
    Err(format!("conversions do not end: {left:?}, {:?}, {:?}", pool.layout_use(), pool.stats()))
}

/// Gives volumes no more layouts, and waits until the last has its.
pub(crate) async fn end(shared: &Shared) {
    shared.policies.is_over.store(true, Ordering::Relaxed);
    while shared.policies.is_busy.load(Ordering::Relaxed) {
        shared.world.sleep(LOOK_EVERY).await;
    }
}

/// What must hold when clients have done their part and no drive is lost.
pub(crate) async fn check(shared: &Shared, pool: &Pool) -> Result<(), String> {
    let volumes: Vec<_> = shared.model.lock().catalog.volumes().collect();
    if !settles(shared, pool, &volumes).await? {
        return Ok(());
    }
    drain(shared, pool).await?;
    // What it has lies where as many failures are tolerated.
    if settles(shared, pool, &volumes).await? {
        let used = pool.layout_use();
        for volume in &volumes {
            let (Some(laid), Some(stats)) = (pool.volume_layout(*volume), pool.volume_stats(*volume)) else {
                continue;
            };
            let wanted = laid.layout_now.parity();
            let strong = used.iter().filter(|used| used.layout.parity() >= wanted);
            let held: u64 = strong.map(|used| used.blocks * 8192).sum();
            if held + pool.space().copied_bytes < stats.mapped_bytes {
                return Err(format!(
                    "volume {volume} maps {} bytes, is laid out as {laid:?}, and only {held} bytes tolerate as much: {used:?}",
                    stats.mapped_bytes
                ));
            }
        }
        let wanted = volumes.iter().filter_map(|volume| pool.volume_layout(*volume));
        lies_in(shared, pool, wanted.map(|laid| laid.layout), "the layouts of the volumes")?;
    }
    // Back to the pool's layout: nothing is left in others, but for what was shared with volumes that are gone.
    for volume in &volumes {
        lay_out(shared, pool, *volume, None).await?;
    }
    let is_settled = settles(shared, pool, &volumes).await?;
    drain(shared, pool).await?;
    if !is_settled || !settles(shared, pool, &volumes).await? {
        return Ok(());
    }
    shared.totals.lock().layout_checks += 1;
    lies_in(shared, pool, [pool.layout_use()[0].layout], "the pool's layout")
}

/// Nothing lies in other layouts, but for what nobody has any more, or several share.
fn lies_in(
    shared: &Shared,
    pool: &Pool,
    layouts: impl IntoIterator<Item = Layout>,
    which: &str,
) -> Result<(), String> {
    let stats = pool.stats();
    // With few domains left, some layouts come to the same.
    let domains = pool.protection().domains;
    let wanted: BTreeSet<Layout> = layouts.into_iter().map(|layout| layout.within(domains)).collect();
    let used = pool.layout_use();
    let others = used.iter().filter(|used| !wanted.contains(&used.layout.within(domains)));
    let left: u64 = others.map(|used| used.blocks).sum();
    let shared_ever = shared.totals.lock().deduplicated_blocks + stats.deduplicated_blocks;
    let is_quiet = stats.sifting_entries + stats.joining_layers == 0 && pool.being_removed().is_empty();
    if left > stats.dropped_blocks + shared_ever && is_quiet {
        return Err(format!(
            "all volumes have {which}, and {left} blocks lie in others: {used:?}, {} were dropped",
            stats.dropped_blocks
        ));
    }
    Ok(())
}

async fn drain(shared: &Shared, pool: &Pool) -> Result<(), String> {
    match pool.drain().await {
        Ok(()) | Err(PoolError::Offline { .. }) => Ok(()),
        Err(error) => shared.excuse(pool, "a drain", &error),
    }
}
