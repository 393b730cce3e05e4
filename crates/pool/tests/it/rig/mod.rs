//! A pool on simulated drives, for tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use quoin_base::{ByteRange, Layout, MIB, VolumeId};
use quoin_drive::{Roles, inspect_set, open_set};
use quoin_pool::{FormatOptions, NewDrive, Pool, PoolOptions, Transaction, check, format};
use quoin_world::{Disk, Slice, World};
use quoin_world_sim::{SimDisk, SimOptions, SimWorld};
use std::{future::Future, sync::Arc, time::Duration};

pub(crate) const SLAB: u32 = 256 << 10;

pub(crate) struct Rig {
    pub(crate) world: Arc<SimWorld>,
    pub(crate) disks: Vec<Arc<SimDisk>>,
}

pub(crate) fn options() -> PoolOptions {
    PoolOptions {
        buffer_bytes: MIB,
        metadata_bytes: MIB,
        dirty_bytes: 256 << 10,
        cache_bytes: 0,
        ahead_bytes: 0,
        destage_after: Duration::from_millis(50),
        checkpoint_after: Duration::from_millis(500),
        replay_bytes: u64::MAX,
        place_from: u64::MAX,
        catalog_records_per_page: 3,
        ..PoolOptions::default()
    }
}

impl Rig {
    /// On drives of so many bytes and one MiB for grant pages.
    pub(crate) fn new(seed: u64, drives: usize, drive_bytes: u64) -> Self {
        Self::with_slices(seed, drives, drive_bytes, 1)
    }

    pub(crate) fn with_slices(seed: u64, drives: usize, drive_bytes: u64, slices: u8) -> Self {
        let both = Roles { journal: true, data: true };
        Self::with_roles(seed, &vec![both; drives], drive_bytes, slices)
    }

    pub(crate) fn with_roles(seed: u64, roles: &[Roles], drive_bytes: u64, slices: u8) -> Self {
        let journal_bytes = 2 * MIB * u64::from(slices);
        Self::laid_out(seed, roles, drive_bytes, slices, (Layout::NONE, journal_bytes))
    }

    /// On as many drives as the layout takes, and one more.
    pub(crate) fn protected(seed: u64, layout: Layout, drive_bytes: u64) -> Self {
        Self::of_drives(seed, layout, usize::from(layout.columns()) + 1, drive_bytes)
    }

    pub(crate) fn of_drives(seed: u64, layout: Layout, drives: usize, drive_bytes: u64) -> Self {
        let both = Roles { journal: true, data: true };
        Self::laid_out(seed, &vec![both; drives], drive_bytes, 1, (layout, 2 * MIB))
    }

    /// The same with so many bytes of journal on each drive.
    pub(crate) fn with_journal_bytes(seed: u64, layout: Layout, drives: usize, bytes: (u64, u64)) -> Self {
        let (both, (drive_bytes, journal_bytes)) = (Roles { journal: true, data: true }, bytes);
        Self::laid_out(seed, &vec![both; drives], drive_bytes, 1, (layout, journal_bytes))
    }

    /// With so much journal on each of its drives that it can do without one.
    pub(crate) fn to_evacuate(seed: u64, layout: Layout, roles: &[Roles], slices: u8) -> Self {
        let journal_bytes = 4 * MIB * u64::from(slices);
        Self::laid_out(seed, roles, 26 * MIB * u64::from(slices), slices, (layout, journal_bytes))
    }

    /// The same disks but one.
    pub(crate) fn without(&self, disk: usize) -> Self {
        let disks = self.disks.iter().enumerate().filter(|(at, _)| *at != disk);
        Self { world: self.world.clone(), disks: disks.map(|(_, disk)| disk.clone()).collect() }
    }

    /// With a journal on so many drives side by side.
    pub(crate) fn with_journal(seed: u64, layout: Layout, roles: &[Roles], journal_columns: u8) -> Self {
        Self::of_journal(seed, layout, roles, journal_columns, 24 * MIB)
    }

    pub(crate) fn of_journal(
        seed: u64,
        layout: Layout,
        roles: &[Roles],
        journal_columns: u8,
        drive_bytes: u64,
    ) -> Self {
        let options = FormatOptions { journal_columns, ..Self::format_options(1, (layout, 2 * MIB)) };
        Self::formatted(seed, roles, drive_bytes, options)
    }

    fn laid_out(seed: u64, roles: &[Roles], drive_bytes: u64, slices: u8, laid_out: (Layout, u64)) -> Self {
        Self::formatted(seed, roles, drive_bytes, Self::format_options(slices, laid_out))
    }

    fn format_options(slices: u8, (layout, journal_bytes): (Layout, u64)) -> FormatOptions {
        FormatOptions {
            pool_name: "test".into(),
            slab_bytes: SLAB,
            row_bytes: SLAB / 4,
            journal_bytes: Some(journal_bytes),
            slices,
            journal_columns: layout.parity() + 1,
            layout,
        }
    }

    fn formatted(seed: u64, roles: &[Roles], drive_bytes: u64, options: FormatOptions) -> Self {
        let world = SimWorld::new(seed, SimOptions { data_threads: 2, step_limit: 20_000_000 });
        let disk = |i: usize| world.disk(&format!("d{i}"), drive_bytes + MIB);
        let disks = (0..roles.len()).map(disk).collect();
        let rig = Self { world, disks };
        let disks = rig.disks().into_iter().zip(roles.iter().copied());
        let disks = disks.map(|(disk, roles)| NewDrive::alone(disk, roles)).collect();
        rig.run(|world| async move { format(&*world, disks, options).await }).unwrap();
        rig
    }

    pub(crate) fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.disks.iter().map(|d| d.clone() as Arc<dyn Disk>).collect()
    }

    pub(crate) fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        main: impl FnOnce(Arc<SimWorld>) -> F,
    ) -> T {
        self.world.run(main(self.world.clone())).unwrap()
    }

    pub(crate) fn open(&self) -> Arc<Pool> {
        self.open_with(options())
    }

    pub(crate) fn open_with(&self, options: PoolOptions) -> Arc<Pool> {
        let disks = self.disks();
        self.run(|world| async move { Pool::open(world, open_set(disks).await.unwrap(), options).await })
            .unwrap()
    }
}

impl Rig {
    /// What is wrong, in words.
    pub(crate) fn problems(&self) -> Vec<String> {
        let disks = self.disks();
        let report = self.run(|_| async move { check(inspect_set(disks).await.unwrap()).await }).unwrap();
        report.problems.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn check(&self) {
        let disks = self.disks();
        let report = self.run(|_| async move { check(inspect_set(disks).await.unwrap()).await }).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        assert!(report.pages > 0, "{report:?}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.world.end();
    }
}

pub(crate) fn pattern(tag: u64, len: usize) -> Slice {
    let bytes: Vec<u8> = (0..len as u64 / 8).flat_map(|i| (tag << 32 | i).to_le_bytes()).collect();
    Slice::copy_of(&bytes)
}

pub(crate) async fn read(pool: &Pool, volume: VolumeId, offset: u64, len: u64) -> Vec<u8> {
    let slices = pool.read(volume, ByteRange::new(offset, len)).await.unwrap();
    slices.iter().flat_map(|s| s.to_vec()).collect()
}

pub(crate) async fn create(pool: &Pool) -> VolumeId {
    let volume = pool.next_volume_id();
    pool.commit(Transaction::new().create_volume(volume)).await.unwrap();
    volume
}

/// A fork of a volume.
pub(crate) async fn fork(pool: &Pool, source: VolumeId) -> VolumeId {
    let target = pool.next_volume_id_near(source);
    pool.commit(Transaction::new().fork(source, target)).await.unwrap();
    target
}

/// Until nothing is left to be given back.
pub(crate) async fn settle(world: &dyn World, pool: &Pool) {
    loop {
        pool.drain().await.unwrap();
        let stats = pool.stats();
        if pool.being_removed().is_empty() && stats.sifting_entries + stats.joining_layers == 0 {
            return;
        }
        world.sleep(Duration::from_millis(5)).await;
    }
}
