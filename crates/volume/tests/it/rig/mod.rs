//! Volumes on one simulated drive.

#![allow(dead_code, reason = "shared by several tests")]

use quoin_base::{Layout, MIB};
use quoin_drive::{Roles, inspect_set, open_set};
use quoin_pool::{FormatOptions, NewDrive, Pool, PoolOptions, Transaction, check, format};
use quoin_volume::{
    Assigned, Folder, ForkSpec, OriginKind, PoolSlot, Tags, Volume, VolumeSpec, Volumes, check_volumes,
    hidden_volumes,
};
use quoin_world::Disk;
use quoin_world_sim::{SimDisk, SimOptions, SimWorld};
use std::{future::Future, sync::Arc, time::Duration};

/// Of a volume.
pub(crate) const SIZE: u64 = MIB;

pub(crate) struct Rig {
    pub(crate) world: Arc<SimWorld>,
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) slot: Arc<PoolSlot>,
    pub(crate) volumes: Arc<Volumes>,
    journal_bytes: u64,
}

impl Rig {
    pub(crate) fn new(seed: u64) -> Self {
        Self::sized(seed, 32 * MIB, 2 * MIB)
    }

    /// On a drive of so many bytes and one MiB for grant pages.
    pub(crate) fn sized(seed: u64, drive_bytes: u64, journal_bytes: u64) -> Self {
        Self::with_slices(seed, drive_bytes, journal_bytes, 1)
    }

    pub(crate) fn with_slices(seed: u64, drive_bytes: u64, journal_bytes: u64, slices: u8) -> Self {
        let world = SimWorld::new(seed, SimOptions { data_threads: 2, step_limit: 20_000_000 });
        let disk = world.disk("d0", drive_bytes + MIB);
        let slot = Arc::new(PoolSlot::empty("not open yet"));
        let volumes = Arc::new(Volumes::new(world.clone(), slot.clone()));
        let rig = Self { world, disk, slot, volumes, journal_bytes };
        let disks = vec![NewDrive::alone(rig.disk.clone(), Roles { journal: true, data: true })];
        let options = FormatOptions {
            pool_name: "test".into(),
            slab_bytes: 256 << 10,
            row_bytes: 64 << 10,
            journal_bytes: Some(journal_bytes),
            slices,
            journal_columns: 1,
            layout: Layout::NONE,
        };
        let world = rig.world.clone();
        rig.run(async move { format(&*world, disks, options).await }).unwrap();
        rig.open();
        rig
    }

    pub(crate) fn run<T: Send + 'static>(&self, main: impl Future<Output = T> + Send + 'static) -> T {
        self.world.run(main).unwrap()
    }

    /// Opens the pool, anew if it is open: then nothing of its maps is in RAM.
    pub(crate) fn open(&self) {
        if let Some(pool) = self.slot.clear("it is opened anew") {
            self.run(async move { pool.close().await }).unwrap();
        }
        let options = PoolOptions {
            buffer_bytes: self.journal_bytes.min(4 * MIB),
            metadata_bytes: MIB,
            dirty_bytes: 256 << 10,
            cache_bytes: 0,
            ahead_bytes: 0,
            destage_after: Duration::from_millis(50),
            checkpoint_after: Duration::from_millis(500),
            replay_bytes: u64::MAX,
            idle_after: Duration::from_millis(500),
            place_from: u64::MAX,
            catalog_records_per_page: 3,
            ..PoolOptions::default()
        };
        let (world, disk) = (self.world.clone(), self.disk.clone() as Arc<dyn Disk>);
        let opened =
            self.run(async move { Pool::open(world, open_set(vec![disk]).await.unwrap(), options).await });
        let pool = opened.unwrap();
        drop(self.volumes.restore(&pool).unwrap());
        self.slot.fill(pool);
    }

    /// What the offline check finds wrong, and how many hidden volumes there are.
    pub(crate) fn check(&self) -> (Vec<String>, usize) {
        let disk = self.disk.clone() as Arc<dyn Disk>;
        let mut report =
            self.run(async move { check(inspect_set(vec![disk]).await.unwrap()).await }).unwrap();
        check_volumes(&mut report);
        let problems = report.problems.iter().map(ToString::to_string).collect();
        (problems, hidden_volumes(&report.objects).len())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.slot.clear("the end");
        self.world.end();
    }
}

pub(crate) async fn create(volumes: &Volumes, name: &str) -> Arc<Volume> {
    create_sized(volumes, name, SIZE).await
}

pub(crate) async fn create_sized(volumes: &Volumes, name: &str, size_bytes: u64) -> Arc<Volume> {
    create_spec(volumes, name, (size_bytes, Assigned::default())).await
}

/// A volume with a policy.
pub(crate) async fn create_with(volumes: &Volumes, name: &str, policy: Assigned) -> Arc<Volume> {
    create_spec(volumes, name, (SIZE, policy)).await
}

async fn create_spec(volumes: &Volumes, name: &str, (size_bytes, policy): (u64, Assigned)) -> Arc<Volume> {
    let (tags, folder) = (Tags::new(), Folder::default());
    let spec =
        VolumeSpec { name: name.into(), size_bytes, block_bytes: 512, thick: false, tags, folder, policy };
    volumes.create(spec, Transaction::new()).await.unwrap()
}

pub(crate) async fn snapshot(volumes: &Volumes, source: &Arc<Volume>, name: &str) -> Arc<Volume> {
    fork(volumes, fork_spec(source, name, OriginKind::Snapshot)).await
}

pub(crate) async fn fork(volumes: &Volumes, spec: ForkSpec) -> Arc<Volume> {
    volumes.fork(vec![spec], Transaction::new()).await.unwrap().remove(0)
}

pub(crate) fn fork_spec(source: &Arc<Volume>, name: &str, kind: OriginKind) -> ForkSpec {
    ForkSpec {
        source: source.clone(),
        name: name.into(),
        kind,
        thick: false,
        compression: None,
        deduplication: None,
        tags: Tags::new(),
        folder: None,
        set: None,
        protected: false,
        retain: None,
    }
}
