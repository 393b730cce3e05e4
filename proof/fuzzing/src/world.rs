//! A small pool in a simulated world, made once, and put back as it was for each input.

use quoin_base::{ByteRange, MIB, VolumeId};
use quoin_drive::{Roles, inspect_set, open_set};
use quoin_pool::{
    CheckReport, FormatOptions, NewDrive, ObjectKind, Pool, PoolOptions, Transaction, check, format,
};
use quoin_world::{Disk, Slice};
use quoin_world_sim::{Image, SimDisk, SimOptions, SimWorld};
use std::{
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

pub(crate) const SLAB_BYTES: u32 = 256 << 10;
pub(crate) const DRIVE_BYTES: u64 = 14 * MIB;
pub(crate) const BLOCK_BYTES: u64 = 8192;
/// Steps that nothing done here comes near to.
const STEPS: u64 = 3_000_000;

/// The drives of a pool as they were when it was stopped.
pub(crate) struct Base {
    pub(crate) drive: Image,
    pub(crate) volumes: Vec<VolumeId>,
}

/// One drive in a world of its own.
pub(crate) struct Bench {
    pub(crate) world: Arc<SimWorld>,
    pub(crate) disk: Arc<SimDisk>,
}

impl Bench {
    pub(crate) fn new(len_bytes: u64) -> Self {
        let world = SimWorld::new(1, SimOptions { data_threads: 1, step_limit: STEPS });
        let disk = world.disk("d0", len_bytes);
        Self { world, disk }
    }

    /// Runs to the end, on the array's threads.
    pub(crate) fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        main: impl FnOnce(Arc<SimWorld>, Arc<dyn Disk>) -> F,
    ) -> T {
        match self.world.run(main(self.world.clone(), self.disk.clone())) {
            Ok(value) => value,
            Err(stopped) => panic!("{stopped}"),
        }
    }

    /// Opens the pool; why not, if it is refused.
    pub(crate) fn open(&self) -> Result<Arc<Pool>, String> {
        self.run(|world, disk| async move {
            let drives = open_set(vec![disk]).await.map_err(|error| error.to_string())?;
            Pool::open(world, drives, options()).await.map_err(|error| error.to_string())
        })
    }

    /// Looks through the pool while it is not open; why not, if it is refused.
    pub(crate) fn check(&self) -> Result<CheckReport, String> {
        self.run(|_, disk| async move {
            let drives = inspect_set(vec![disk]).await.map_err(|error| error.to_string())?;
            check(drives).await.map_err(|error| error.to_string())
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.world.end();
    }
}

pub(crate) fn options() -> PoolOptions {
    PoolOptions {
        buffer_bytes: MIB,
        metadata_bytes: MIB,
        dirty_bytes: 256 << 10,
        destage_after: Duration::from_millis(50),
        checkpoint_after: Duration::from_millis(500),
        ..PoolOptions::default()
    }
}

/// A pool with a checkpoint and records after it, in the journal only.
pub(crate) fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(make)
}

fn make() -> Base {
    let bench = Bench::new(DRIVE_BYTES);
    let both = Roles { journal: true, data: true };
    let options = FormatOptions {
        pool_name: "fuzz".into(),
        slab_bytes: SLAB_BYTES,
        row_bytes: SLAB_BYTES / 4,
        journal_bytes: Some(4 * MIB),
        slices: 1,
        ..FormatOptions::default()
    };
    bench
        .run(|world, disk| async move { format(&*world, vec![NewDrive::alone(disk, both)], options).await })
        .expect("a pool is made of an empty drive");
    let pool = bench.open().expect("a new pool opens");
    let volumes = bench.run(|_, _| fill(pool));
    bench.world.kill();
    Base { drive: bench.disk.image(), volumes }
}

async fn fill(pool: Arc<Pool>) -> Vec<VolumeId> {
    let volumes: Vec<_> = (0..3).map(|_| pool.next_volume_id()).collect();
    for (number, volume) in volumes.iter().enumerate() {
        let key = format!("{:010}", volume.0);
        let value = format!("{{\"version\":1,\"name\":\"v{number}\"}}").into_bytes();
        let transaction = Transaction::new().create_volume(*volume).put(ObjectKind(1), &key, value);
        pool.commit(transaction).await.expect("an empty pool takes volumes");
    }
    let block = |tag: u8, blocks: usize| vec![Slice::copy_of(&vec![tag; blocks * BLOCK_BYTES as usize])];
    // Far from each other too, so that trees have height.
    for (number, offset) in (0..).zip([0, 10 * BLOCK_BYTES, 4 * MIB, 3 << 30, 5 << 40]) {
        pool.write(volumes[0], offset, block(number, 9)).await.expect("there is room");
    }
    pool.write(volumes[2], 0, block(7, 4)).await.expect("there is room");
    pool.drain().await.expect("drives work");
    pool.unmap(volumes[0], ByteRange::new(2 * BLOCK_BYTES, 2 * BLOCK_BYTES)).await.expect("drives work");
    pool.commit(Transaction::new().delete_volume(volumes[2])).await.expect("drives work");
    pool.drain().await.expect("drives work");
    // From here on in the journal only.
    for number in 0..6u8 {
        let offset = u64::from(number) * 3 * BLOCK_BYTES + 512;
        pool.write(volumes[1], offset, vec![Slice::copy_of(&[number; 1536])]).await.expect("there is room");
    }
    pool.unmap(volumes[1], ByteRange::new(BLOCK_BYTES, BLOCK_BYTES)).await.expect("drives work");
    pool.commit(Transaction::new().put(ObjectKind(2), "h1", b"{}".to_vec())).await.expect("drives work");
    volumes
}
