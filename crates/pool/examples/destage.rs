//! How many blocks a second destage publishes when drives cost nothing, with one slice and with two.
//!
//! Threads and clock are real. The drive keeps what is written until the pool is open and drops everything after that:
//! nothing is read back, since all metadata stays in RAM. Each round fills the write buffer with random blocks of a mapped
//! volume and times `drain`, which gathers them, builds rows with checksums, changes both maps and makes a checkpoint.
//! Slices begin at the same moment, each on a thread of its own.
//!
//! ```text
//! cargo run --release -p quoin-pool --example destage
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "it measures, and ends when anything fails"
)]

use quoin_base::{GIB, KIB, MIB, SliceId, VolumeId};
use quoin_drive::{Roles, open_set};
use quoin_pool::{FormatOptions, NewDrive, Pool, PoolOptions, Transaction, format};
use quoin_world::{
    Buf, Completion, Disk, DiskOp, Mutex, Slice, Task, Thread,
    atomic::{AtomicBool, Ordering},
};
use quoin_world_linux::{LinuxWorld, block_on};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

const BLOCK_BYTES: u64 = 8 * KIB;
const PAGE_BYTES: usize = 4096;
const DRIVE_BYTES: u64 = 128 * GIB;
const VOLUME_BLOCKS: u64 = 100_000;
/// Blocks that a round writes to each slice.
const ROUND_BLOCKS: u64 = 20_000;
const ROUNDS: usize = 9;

/// A drive that takes no time. From a moment on it forgets what is written.
#[derive(Default)]
struct Weightless {
    pages: Mutex<HashMap<u64, [u8; PAGE_BYTES]>>,
    forgets: AtomicBool,
}

impl Weightless {
    fn read(&self, offset: u64, buf: &mut Buf) {
        assert!(!self.forgets.load(Ordering::Acquire), "nothing is read of what was dropped");
        let pages = self.pages.lock();
        let numbers = offset / PAGE_BYTES as u64..;
        for (number, page) in numbers.zip(buf.as_mut_slice().chunks_exact_mut(PAGE_BYTES)) {
            page.copy_from_slice(pages.get(&number).unwrap_or(&[0; PAGE_BYTES]));
        }
    }

    fn write(&self, offset: u64, data: &[Slice]) {
        if self.forgets.load(Ordering::Acquire) {
            return;
        }
        let mut pages = self.pages.lock();
        let numbers = offset / PAGE_BYTES as u64..;
        for (number, page) in numbers.zip(data.iter().flat_map(|slice| slice.chunks_exact(PAGE_BYTES))) {
            pages.insert(number, page.try_into().unwrap());
        }
    }
}

impl Disk for Weightless {
    fn name(&self) -> &str {
        "weightless"
    }

    fn len_bytes(&self) -> u64 {
        DRIVE_BYTES
    }

    fn block_bytes(&self) -> u32 {
        PAGE_BYTES as u32
    }

    fn submit(&self, op: DiskOp) -> Completion {
        let mut answer = Buf::zeroed(0);
        match op {
            DiskOp::Read { offset, mut buf } => {
                self.read(offset, &mut buf);
                answer = buf;
            }
            DiskOp::Write { offset, data, .. } => self.write(offset, &data),
            DiskOp::Flush | DiskOp::Discard { .. } => {}
        }
        Completion::ready(Ok(answer))
    }
}

/// A pool with a volume in each slice.
async fn open(world: Arc<LinuxWorld>, slices: u8) -> Arc<Pool> {
    let drive = Arc::new(Weightless::default());
    let disk = drive.clone() as Arc<dyn Disk>;
    let chosen = FormatOptions { pool_name: "destage".into(), slices, ..FormatOptions::default() };
    format(&*world, vec![NewDrive::alone(disk.clone(), Roles { journal: true, data: true })], chosen)
        .await
        .unwrap();
    let options = PoolOptions {
        buffer_bytes: 2 * GIB,
        dirty_bytes: GIB,
        metadata_bytes: 4 * GIB,
        cache_bytes: 0,
        ahead_bytes: 0,
        // Only when `drain` asks for it.
        destage_after: Duration::from_secs(3600),
        checkpoint_after: Duration::from_secs(3600),
        ..PoolOptions::default()
    };
    let pool = Pool::open(world, open_set(vec![disk]).await.unwrap(), options).await.unwrap();
    drive.forgets.store(true, Ordering::Release);
    let create = |all: Transaction, slice| all.create_volume(VolumeId::first_of(SliceId(slice)));
    pool.commit((0..slices).fold(Transaction::new(), create)).await.unwrap();
    pool
}

async fn write(pool: &Pool, slice: u8, blocks: impl Iterator<Item = u64>) {
    let data = Slice::copy_of(&[7; BLOCK_BYTES as usize]);
    for block in blocks {
        let volume = VolumeId::first_of(SliceId(slice));
        pool.write(volume, block * BLOCK_BYTES, vec![data.clone()]).await.unwrap();
    }
}

/// Blocks that `drain` publishes in a second, of each round, in order.
fn measured(slices: u8) -> Vec<f64> {
    let world = LinuxWorld::start(2).unwrap();
    let pool = block_on(world.run_on(Thread::Data(0), open(world.clone(), slices))).unwrap();
    let run = |task: Task| block_on(world.run_on(Thread::Data(0), task)).unwrap();
    let drain = || {
        let pool = pool.clone();
        run(Box::pin(async move { pool.drain().await.unwrap() }));
    };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for first in (0..VOLUME_BLOCKS).step_by(ROUND_BLOCKS as usize) {
        for slice in 0..slices {
            let pool = pool.clone();
            run(Box::pin(async move { write(&pool, slice, first..first + ROUND_BLOCKS).await }));
        }
        drain();
    }
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        for slice in 0..slices {
            let blocks: Vec<u64> = (0..ROUND_BLOCKS).map(|_| rng.random_range(0..VOLUME_BLOCKS)).collect();
            let pool = pool.clone();
            run(Box::pin(async move { write(&pool, slice, blocks.into_iter()).await }));
        }
        let (before, began) = (pool.stats().destaged_blocks, Instant::now());
        drain();
        rates.push((pool.stats().destaged_blocks - before) as f64 / began.elapsed().as_secs_f64());
    }
    world.shutdown();
    rates.sort_by(f64::total_cmp);
    rates
}

fn main() {
    println!("| slices | blocks/s, median | least | most |");
    println!("| --- | --- | --- | --- |");
    let mut medians = Vec::new();
    for slices in [1, 2] {
        let rates = measured(slices);
        let median = rates[rates.len() / 2];
        println!("| {slices} | {median:.0} | {:.0} | {:.0} |", rates[0], rates[rates.len() - 1]);
        medians.push(median);
    }
    let mib = ROUND_BLOCKS * BLOCK_BYTES / MIB;
    println!("\ntwo slices: {:.2} times one; {mib} MiB a round and slice", medians[1] / medians[0]);
}
