//! What a seed is like: its drives, options, load, and how each of its boots ends.

use quoin_base::{KIB, Layout, MIB};
use quoin_drive::Roles;
use quoin_pool::{FormatOptions, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// How a boot ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The array is stopped.
    Stop,
    /// Cut off once its hosts and administrators are done.
    Work,
    /// Cut off so long after the change of this number began.
    Change(u32, Duration),
    /// Cut off before the step after so many others, recovery included.
    Step(u64),
    /// Cut off right after this disk operation was begun.
    DiskOp(u64),
}

/// One boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Boot {
    pub ending: Ending,
    /// Cut off means that the process is killed, not that the power is cut.
    pub kill: bool,
    /// The drives are checked before it.
    pub check: bool,
    /// Operations of each host.
    pub operations: u32,
    /// Changes of each administrator.
    pub changes: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub drives: Vec<(u64, Roles)>,
    pub format: FormatOptions,
    pub pool: PoolOptions,
    pub threads: usize,
    pub hosts: usize,
    pub admins: usize,
    pub boots: u32,
    rng: ChaCha8Rng,
}

/// A number between `from` and `to`; each order of magnitude is as likely as the next.
pub(crate) fn log_uniform(rng: &mut ChaCha8Rng, from: u64, to: u64) -> u64 {
    let (from, to) = (from.max(1) as f64, to.max(1) as f64);
    (from * (to / from).powf(rng.random::<f64>())) as u64
}

/// Most seeds have one slice, the others three; of a stream of its own.
fn slices(seed: u64) -> u8 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(82);
    if rng.random_bool(0.3) { 3 } else { 1 }
}

impl Scenario {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(81);
        let slices = slices(seed);
        let parts = u64::from(slices);
        let journal_bytes = rng.random_range(16..=48) * 256 * KIB * parts;
        // In a small pool space runs out.
        let crowded = rng.random_bool(0.3);
        let all = Roles { journal: true, data: true };
        let data_bytes =
            if crowded { rng.random_range(8..=14) } else { rng.random_range(40..=96) } * MIB * parts;
        let drives = match rng.random_range(0..3) {
            0 => vec![(data_bytes + journal_bytes + 2 * MIB, all)],
            1 => vec![(data_bytes / 2 + journal_bytes + 2 * MIB, all); 2],
            _ => vec![
                (journal_bytes + 3 * MIB, Roles { journal: true, data: false }),
                (data_bytes + 2 * MIB, Roles { journal: false, data: true }),
            ],
        };
        let format = FormatOptions {
            pool_name: format!("seed {seed}"),
            slab_bytes: (256 * KIB) as u32,
            row_bytes: [16 << 10, 32 << 10, 64 << 10][rng.random_range(0..3)],
            journal_bytes: Some(journal_bytes),
            slices,
            journal_columns: 1,
            layout: Layout::NONE,
        };
        let pool = PoolOptions {
            buffer_bytes: log_uniform(&mut rng, 512 * KIB, 8 * MIB),
            metadata_bytes: log_uniform(&mut rng, 64 * KIB, MIB),
            dirty_bytes: log_uniform(&mut rng, 96 * KIB, 512 * KIB),
            ahead_bytes: 256 * KIB,
            index_bytes: 1 << 16,
            cache_bytes: if rng.random_bool(0.5) { 0 } else { MIB },
            destage_after: Duration::from_micros(log_uniform(&mut rng, 500, 300_000)),
            checkpoint_after: Duration::from_micros(log_uniform(&mut rng, 2_000, 1_000_000)),
            replay_bytes: u64::MAX,
            idle_after: Duration::from_millis(100),
            place_from: 16 * KIB,
            catalog_records_per_page: [2, 5, usize::MAX][seed as usize % 3],
            layer_ids: u32::MAX,
            without_missing: false,
        };
        let threads = rng.random_range(1..=3);
        let (hosts, admins) = (rng.random_range(1..=4), rng.random_range(1..=2));
        let boots = rng.random_range(2..=5);
        Self { drives, format, pool, threads, hosts, admins, boots, rng }
    }

    pub(crate) fn next_boot(&mut self, last: bool) -> Boot {
        let rng = &mut self.rng;
        let (operations, changes) = (rng.random_range(20..=120), rng.random_range(3..=16));
        let ending = match rng.random_range(0..10) {
            _ if last => Ending::Stop,
            0 => Ending::Stop,
            1 => Ending::Work,
            2..=6 => {
                let number = rng.random_range(1..=changes);
                Ending::Change(number, Duration::from_micros(log_uniform(rng, 1, 20_000)))
            }
            7..=8 => Ending::Step(log_uniform(rng, 100, 60_000)),
            _ => Ending::DiskOp(log_uniform(rng, 1, 3_000)),
        };
        let (kill, check) = (rng.random_bool(0.4), rng.random_bool(0.3));
        Boot { ending, kill, check, operations, changes }
    }
}
