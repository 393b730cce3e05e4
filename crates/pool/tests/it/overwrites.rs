//! What random overwrites cost in metadata when little of it fits in RAM: counted, on a drive in RAM whose time is the
//! simulated world's.

#![allow(clippy::disallowed_methods, reason = "it tells real time beside what it counts")]

use futures_util::{StreamExt, stream};
use quoin_base::{KIB, Layout, MIB, VolumeId};
use quoin_drive::{Roles, inspect_set, open_set};
use quoin_pool::{FormatOptions, NewDrive, Pool, PoolOptions, Transaction, check, format};
use quoin_world::{Buf, Completion, Disk, DiskOp, Nanos, Slice, Thread, World};
use quoin_world_sim::{SimOptions, SimWorld};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const BLOCK: u64 = 8 * KIB;
const PAGE: usize = 4096;
/// Writes under way at the same time.
const DEPTH: usize = 32;
/// What the drive takes for an operation, beside its turn on the bus.
const LATENCY: Duration = Duration::from_micros(80);
const BUS_BYTES_PER_US: u64 = 2000;

/// A drive in RAM. A page of one repeated word, as all data here is, takes that word.
#[derive(Default)]
struct Medium {
    words: Vec<u64>,
    pages: HashMap<usize, Box<[u8; PAGE]>>,
    busy_until: Nanos,
}

impl Medium {
    fn read(&self, page: usize, into: &mut [u8]) {
        match self.pages.get(&page) {
            Some(bytes) => into.copy_from_slice(&bytes[..]),
            None => into.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&self.words[page].to_le_bytes())),
        }
    }

    fn write(&mut self, page: usize, bytes: &[u8]) {
        if bytes[8..] == bytes[..PAGE - 8] {
            self.words[page] = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            self.pages.remove(&page);
        } else {
            self.pages.insert(page, Box::new(bytes.try_into().unwrap()));
        }
    }
}

struct RamDisk {
    world: Arc<SimWorld>,
    medium: Mutex<Medium>,
    len_bytes: u64,
}

impl RamDisk {
    fn new(world: &Arc<SimWorld>, len_bytes: u64) -> Arc<Self> {
        let medium = Medium { words: vec![0; len_bytes as usize / PAGE], ..Medium::default() };
        Arc::new(Self { world: world.clone(), medium: Mutex::new(medium), len_bytes })
    }

    /// Carries an operation out. Returns what it read, and how many bytes were moved.
    fn perform(medium: &mut Medium, op: DiskOp) -> (Buf, u64) {
        let pages = |offset: u64| offset as usize / PAGE..;
        match op {
            DiskOp::Read { offset, mut buf } => {
                let (first, end) = (offset as usize / PAGE, (offset as usize + buf.len()).div_ceil(PAGE));
                let mut whole = vec![0; (end - first) * PAGE];
                (first..).zip(whole.chunks_exact_mut(PAGE)).for_each(|(page, into)| medium.read(page, into));
                let len = buf.len();
                buf.as_mut_slice().copy_from_slice(&whole[offset as usize % PAGE..][..len]);
                (buf, len as u64)
            }
            DiskOp::Write { offset, data, .. } => {
                let bytes: Vec<u8> = data.iter().flat_map(|slice| slice.iter().copied()).collect();
                assert!(offset.is_multiple_of(PAGE as u64) && bytes.len().is_multiple_of(PAGE));
                pages(offset).zip(bytes.chunks_exact(PAGE)).for_each(|(page, from)| medium.write(page, from));
                (Buf::default(), bytes.len() as u64)
            }
            DiskOp::Flush | DiskOp::Discard { .. } => (Buf::default(), 0),
        }
    }
}

impl Disk for RamDisk {
    fn name(&self) -> &str {
        "ram"
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn block_bytes(&self) -> u32 {
        PAGE as u32
    }

    fn submit(&self, op: DiskOp) -> Completion {
        let (completer, completion) = Completion::new();
        let mut medium = self.medium.lock().unwrap_or_else(PoisonError::into_inner);
        let (buf, bytes) = Self::perform(&mut medium, op);
        let now = self.world.now();
        medium.busy_until.0 = medium.busy_until.0.max(now.0) + bytes * 1000 / BUS_BYTES_PER_US;
        let done = Duration::from_nanos(medium.busy_until.0 - now.0) + LATENCY;
        let slept = self.world.sleep(done);
        let task = async move {
            slept.await;
            completer.complete(Ok(buf));
        };
        self.world.spawn(self.world.current().unwrap_or(Thread::Background), Box::pin(task));
        completion
    }
}

struct Load {
    data_bytes: u64,
    metadata_bytes: u64,
    dirty_bytes: u64,
    /// Overwritten before it is counted, and while it is.
    warm_blocks: u64,
    blocks: u64,
}

/// What an overwritten block cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Bytes of metadata written for each byte of the host's.
    written: f64,
    /// Metadata pages read from the drive for each block.
    loads: f64,
    blocks_per_s: f64,
    wall_us_per_block: f64,
    checkpoints: u64,
    checkpoint_bytes: u64,
    /// The part of the blocks that were destaged while a checkpoint was under way.
    beside: f64,
    longest_write: Duration,
}

async fn overwrite(pool: &Pool, volume: VolumeId, load: &Load, rng: &mut ChaCha8Rng, blocks: u64) {
    let end = load.data_bytes / BLOCK;
    let writes = (0..blocks).map(|_| {
        let (at, word) = (rng.random_range(0..end), rng.random_range(1..u64::MAX));
        let bytes: Vec<u8> = word.to_le_bytes().repeat(BLOCK as usize / 8);
        pool.write(volume, at * BLOCK, vec![Slice::copy_of(&bytes)])
    });
    let mut writes = stream::iter(writes).buffer_unordered(DEPTH);
    while let Some(written) = writes.next().await {
        written.unwrap();
    }
}

fn cost(load: Load) -> Cost {
    let world = SimWorld::new(7, SimOptions { data_threads: 1, step_limit: u64::MAX });
    let disk = RamDisk::new(&world, 2 * load.data_bytes + 256 * MIB);
    let disks = move || vec![disk.clone() as Arc<dyn Disk>];
    let run = {
        let (world, disks) = (world.clone(), disks.clone());
        async move {
            let format_options = FormatOptions {
                pool_name: "overwrites".into(),
                slab_bytes: 4 << 20,
                row_bytes: MIB as u32,
                journal_bytes: Some(128 * MIB),
                slices: 1,
                journal_columns: 1,
                layout: Layout::NONE,
            };
            let roles = Roles { journal: true, data: true };
            let with_roles = disks().into_iter().map(|disk| NewDrive::alone(disk, roles)).collect();
            format(&*world, with_roles, format_options).await.unwrap();
            let options = PoolOptions {
                buffer_bytes: 16 * MIB,
                metadata_bytes: load.metadata_bytes,
                dirty_bytes: load.dirty_bytes,
                cache_bytes: 0,
                ahead_bytes: 0,
                replay_bytes: u64::MAX,
                place_from: u64::MAX,
                ..PoolOptions::default()
            };
            let set = open_set(disks()).await.unwrap();
            let pool = Pool::open(world.clone(), set, options).await.unwrap();
            let volume = pool.next_volume_id();
            pool.commit(Transaction::new().create_volume(volume)).await.unwrap();
            for offset in (0..load.data_bytes).step_by(MIB as usize) {
                let bytes: Vec<u8> = (offset + 1).to_le_bytes().repeat(MIB as usize / 8);
                pool.write(volume, offset, vec![Slice::copy_of(&bytes)]).await.unwrap();
            }
            pool.drain().await.unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            overwrite(&pool, volume, &load, &mut rng, load.warm_blocks).await;
            let (before, since, wall) = (pool.stats(), world.now(), std::time::Instant::now());
            overwrite(&pool, volume, &load, &mut rng, load.blocks).await;
            let (after, took) = (pool.stats(), world.now().since(since));
            let blocks = (after.destaged_blocks - before.destaged_blocks) as f64;
            let written = (after.checkpoint_bytes - before.checkpoint_bytes) as f64;
            let cost = Cost {
                written: written / (blocks * BLOCK as f64),
                loads: (after.metadata_loads - before.metadata_loads) as f64 / blocks,
                blocks_per_s: blocks / took.as_secs_f64(),
                wall_us_per_block: wall.elapsed().as_secs_f64() * 1e6 / blocks,
                checkpoints: after.checkpoints - before.checkpoints,
                checkpoint_bytes: after.checkpoint_bytes - before.checkpoint_bytes,
                beside: (after.destaged_beside_checkpoints - before.destaged_beside_checkpoints) as f64
                    / blocks,
                longest_write: after.longest_write,
            };
            pool.close().await.unwrap();
            cost
        }
    };
    let cost = world.run(run).unwrap();
    let report = world.run(async move { check(inspect_set(disks()).await.unwrap()).await }).unwrap().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
    world.end();
    cost
}

/// With so much RAM for metadata, half of which may be dirty, and data a thousand times as large.
fn load(metadata_bytes: u64) -> Load {
    let data_bytes = 1000 * metadata_bytes / MIB * MIB;
    let blocks = data_bytes / BLOCK;
    let dirty_bytes = metadata_bytes / 2;
    Load { data_bytes, metadata_bytes, dirty_bytes, warm_blocks: blocks / 4, blocks: blocks / 4 }
}

#[test]
fn overwrites_of_cold_blocks_read_and_write_little_metadata() {
    let Cost { written, loads, .. } = cost(load(MIB));
    assert!(written <= 0.55, "{written:.2} bytes of metadata for each byte of the host's");
    assert!(loads <= 0.6, "{loads:.2} pages read for each block");
}

#[test]
#[ignore = "it takes minutes and prints figures: METADATA_MIB=4 cargo test -p quoin-pool --test it overwrites -- --ignored --nocapture"]
fn what_overwrites_cost() {
    let mib: u64 = std::env::var("METADATA_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(4);
    let cold = cost(load(mib * MIB));
    let warm = cost(Load { metadata_bytes: 64 * mib * MIB, ..load(mib * MIB) });
    println!("cold {cold:.2?}\nwarm {warm:.2?}, rate {:.2}", cold.blocks_per_s / warm.blocks_per_s);
    for Cost { checkpoints, checkpoint_bytes, beside, longest_write, .. } in [cold, warm] {
        println!(
            "{checkpoints} checkpoints, {checkpoint_bytes} bytes, {beside:.2} beside, {longest_write:?}"
        );
    }
    println!("wall {:.1} and {:.1} us a block", cold.wall_us_per_block, warm.wall_us_per_block);
}
