//! A volume that has become immutable, or a template, does not change any more: not by what was under way either.

use quoin_base::{ByteRange, MIB};
use quoin_drive::{Roles, open_set};
use quoin_pool::{FormatOptions, Pool, PoolOptions, Transaction, format};
use quoin_volume::{
    BlockDevice, DeviceError, Folder, ForkSpec, OriginKind, PoolSlot, Tags, Volume, VolumeChange,
    VolumeError, VolumeSpec, Volumes,
};
use quoin_world::{Disk, OneShot, Slice, Thread, World, one_shot};
use quoin_world_sim::{FaultPlan, SimDisk, SimOptions, SimWorld};
use std::{future::Future, sync::Arc, time::Duration};

/// What is mapped: several leaves of the map, and many records.
const SIZE: u64 = 12 * MIB;
const DAY: Duration = Duration::from_secs(86_400);

struct Rig {
    world: Arc<SimWorld>,
    disk: Arc<SimDisk>,
    slot: Arc<PoolSlot>,
    volumes: Arc<Volumes>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let world = SimWorld::new(seed, SimOptions { data_threads: 2, step_limit: 20_000_000 });
        let disk = world.disk("d0", 96 * MIB);
        let slot = Arc::new(PoolSlot::empty("not open yet"));
        let volumes = Arc::new(Volumes::new(world.clone(), slot.clone()));
        let rig = Self { world, disk, slot, volumes };
        let disks = vec![(rig.disk.clone() as Arc<dyn Disk>, Roles { journal: true, data: true })];
        let options = FormatOptions {
            pool_name: "test".into(),
            slab_bytes: 256 << 10,
            row_bytes: 64 << 10,
            journal_bytes: Some(8 * MIB),
        };
        let world = rig.world.clone();
        rig.run(async move { format(&*world, disks, options).await }).unwrap();
        rig.open();
        rig
    }

    fn run<T: Send + 'static>(&self, main: impl Future<Output = T> + Send + 'static) -> T {
        self.world.run(main).unwrap()
    }

    /// Opens the pool, anew if it is open: then nothing of its maps is in RAM.
    fn open(&self) {
        if let Some(pool) = self.slot.clear("it is opened anew") {
            self.run(async move { pool.close().await }).unwrap();
        }
        let options = PoolOptions {
            buffer_bytes: 4 * MIB,
            metadata_bytes: MIB,
            dirty_bytes: 256 << 10,
            cache_bytes: 0,
            destage_after: Duration::from_millis(50),
            checkpoint_after: Duration::from_millis(500),
        };
        let (world, disk) = (self.world.clone(), self.disk.clone() as Arc<dyn Disk>);
        let opened =
            self.run(async move { Pool::open(world, open_set(vec![disk]).await.unwrap(), options).await });
        let pool = opened.unwrap();
        drop(self.volumes.restore(&pool).unwrap());
        self.slot.fill(pool);
    }

    /// A snapshot that is mapped and holds data all over, in a pool with drives that take their time.
    fn snapshot(&self) -> Arc<Volume> {
        let volumes = self.volumes.clone();
        self.run(async move {
            let (tags, folder) = (Tags::new(), Folder::default());
            let spec = VolumeSpec {
                name: "v".into(),
                size_bytes: SIZE,
                block_bytes: 512,
                thick: false,
                tags,
                folder,
            };
            let volume = volumes.create(spec, Transaction::new()).await.unwrap();
            for at in (0..SIZE).step_by(MIB as usize) {
                volume.write(at, vec![Slice::copy_of(&vec![7; MIB as usize])]).await.unwrap();
            }
            let snapshot = ForkSpec {
                source: volume,
                name: "s".into(),
                kind: OriginKind::Snapshot,
                thick: false,
                tags: Tags::new(),
                folder: None,
                set: None,
                retain: None,
                protected: false,
            };
            volumes.fork(vec![snapshot], Transaction::new()).await.unwrap();
        });
        self.open();
        let latency = Duration::from_millis(2)..=Duration::from_millis(4);
        self.disk.set_faults(FaultPlan { latency, ..FaultPlan::default() });
        self.volumes.get("s").unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.slot.clear("the end");
        self.world.end();
    }
}

/// What a host asks of the snapshot at the time at which it becomes immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    /// One long UNMAP or trim.
    Unmap,
    /// The pieces of a WRITE SAME or of writing zeroes with data.
    Pieces,
    /// One long write.
    Write,
}

async fn ask(host: Host, snapshot: &Volume) -> Result<(), DeviceError> {
    let piece = |at: u64| vec![Slice::copy_of(&vec![at as u8 + 100; MIB as usize / 2])];
    match host {
        Host::Unmap => snapshot.unmap(ByteRange::new(0, SIZE)).await,
        Host::Pieces => {
            for at in 0..20 {
                snapshot.write(at * MIB / 2, piece(at)).await?;
            }
            Ok(())
        }
        Host::Write => snapshot.write(0, (0..20).flat_map(piece).collect()).await,
    }
}

/// How the snapshot is made one that nobody writes to.
#[derive(Clone, Copy, Debug)]
enum How {
    Retain,
    Template,
}

async fn freeze(volumes: &Volumes, how: How, snapshot: &Arc<Volume>) -> Result<(), VolumeError> {
    match how {
        How::Retain => volumes.retain(std::slice::from_ref(snapshot), DAY, Transaction::new()).await,
        How::Template => {
            let change = VolumeChange { template: Some(true), ..VolumeChange::default() };
            volumes.change("s", change, Transaction::new()).await.map(drop)
        }
    }
}

async fn content(volume: &Volume) -> Vec<u8> {
    let slices = volume.read(ByteRange::new(0, SIZE)).await.unwrap();
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

fn spawn<T: Send + 'static>(world: &SimWorld, task: impl Future<Output = T> + Send + 'static) -> OneShot<T> {
    let (sender, ended) = one_shot();
    world.spawn(Thread::Data(1), Box::pin(async move { sender.send(task.await) }));
    ended
}

/// What changed of a snapshot after it was said to be immutable, if anything did.
fn look(host: Host, how: How, seed: u64) -> Result<(), String> {
    let rig = Rig::new(seed);
    let snapshot = rig.snapshot();
    let (world, volumes) = (rig.world.clone(), rig.volumes.clone());
    rig.run(async move {
        let asked = snapshot.clone();
        let under_way = spawn(&world, async move { ask(host, &asked).await });
        world.sleep(Duration::from_millis(10 + seed % 7)).await;
        // One that comes while the change is made.
        let asked = snapshot.clone();
        let late_world = world.clone();
        let late = spawn(&world, async move {
            late_world.sleep(Duration::from_millis(1)).await;
            asked.unmap(ByteRange::new(SIZE / 2, MIB)).await
        });
        freeze(&volumes, how, &snapshot).await.unwrap();
        let before = content(&snapshot).await;
        let (outcome, late) = (under_way.await.unwrap(), late.await.unwrap());
        world.sleep(Duration::from_secs(2)).await;
        let changed = content(&snapshot).await != before;
        for outcome in [&outcome, &late] {
            assert!(matches!(outcome, Ok(()) | Err(DeviceError::ReadOnly { .. })), "{outcome:?}");
        }
        let after = snapshot.unmap(ByteRange::new(0, 4096)).await;
        assert!(matches!(after, Err(DeviceError::ReadOnly { .. })), "{after:?}");
        match changed {
            true => Err(format!("{host:?} under way, {how:?}, seed {seed}: it changed afterwards")),
            false => Ok(()),
        }
    })
}

#[test]
fn what_is_under_way_when_a_snapshot_becomes_immutable_ends_before() {
    for host in [Host::Unmap, Host::Pieces, Host::Write] {
        for how in [How::Retain, How::Template] {
            for seed in 0..2 {
                look(host, how, seed).unwrap();
            }
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gate_left_open_is_noticed() {
    use quoin_pool::bugs::{Bug, plant};
    for how in [How::Retain, How::Template] {
        plant(Some(Bug::GateLeftOpen));
        let found = (0..4).any(|seed| look(Host::Unmap, how, seed).is_err());
        plant(None);
        assert!(found, "{how:?}");
    }
}
