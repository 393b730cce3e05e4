//! What operations cost in a pool with many volumes and snapshots, against a pool with ten of each.
//!
//! The pool lies on a drive in RAM, in a world with a clock of its own: what is measured is the time of the processor,
//! committer included, of one thread. Run it without debug assertions, some of which go through everything:
//!
//! ```text
//! cargo run --release -p quoin-volume --example many -- 10000 100000
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "it measures, and ends when anything fails"
)]

use quoin_base::{GIB, MIB};
use quoin_drive::{Roles, open_set};
use quoin_pool::{FormatOptions, NewDrive, Pool, PoolOptions, PoolStats, Transaction, format};
use quoin_volume::{Folder, ForkSpec, OriginKind, PoolSlot, Tags, Volume, VolumeSpec, Volumes};
use quoin_world::{Disk, Slice};
use quoin_world_sim::{SimOptions, SimWorld};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How often each operation is measured.
const TIMES: u64 = 100;
const VOLUME_BYTES: u64 = 64 * MIB;
/// Blocks that a batch of destage takes, of as many volumes.
const BATCH: u64 = 10;

struct Rig {
    world: Arc<SimWorld>,
    pool: Arc<Pool>,
    volumes: Arc<Volumes>,
}

/// Microseconds of an operation, and what is counted of it.
type Row = (&'static str, f64);

impl Rig {
    fn new() -> Self {
        let world = SimWorld::new(1, SimOptions { data_threads: 1, step_limit: u64::MAX });
        let disk = world.disk("d0", 16 * GIB);
        let slot = Arc::new(PoolSlot::empty("not open yet"));
        let volumes = Arc::new(Volumes::new(world.clone(), slot.clone()));
        let (inside, disk) = (world.clone(), disk as Arc<dyn Disk>);
        let opened = world.run(async move {
            let options = FormatOptions { pool_name: "many".into(), ..FormatOptions::default() };
            format(
                &*inside,
                vec![NewDrive::alone(disk.clone(), Roles { journal: true, data: true })],
                options,
            )
            .await
            .unwrap();
            // Checkpoints are made when they are asked for, or when much has changed.
            let options = PoolOptions {
                destage_after: Duration::from_secs(3600),
                checkpoint_after: Duration::from_secs(3600),
                cache_bytes: 0,
                ahead_bytes: 0,
                ..PoolOptions::default()
            };
            Pool::open(inside, open_set(vec![disk]).await.unwrap(), options).await.unwrap()
        });
        let pool = opened.unwrap();
        volumes.restore(&pool).unwrap();
        slot.fill(pool.clone());
        Self { world, pool, volumes }
    }

    /// The time that `operation` takes, in microseconds.
    fn time<F: Future<Output = ()> + Send + 'static>(&self, operation: F) -> f64 {
        let began = Instant::now();
        self.world.run(operation).unwrap();
        began.elapsed().as_secs_f64() * 1e6
    }

    /// The median of the times of many.
    fn median<F: Future<Output = ()> + Send + 'static>(&self, operation: impl Fn(u64) -> F) -> f64 {
        let mut times: Vec<f64> = (0..TIMES).map(|n| self.time(operation(n))).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    fn fill(&self, volumes: u64, snapshots: u64) {
        let (all, pool) = (self.volumes.clone(), self.pool.clone());
        self.time(async move {
            for n in 0..volumes {
                let volume = create(&all, &format!("base-{n}")).await;
                for s in 0..snapshots / volumes {
                    snapshot(&all, &volume, &format!("base-{n}-{s}")).await;
                    if s % 4 == 3 {
                        pool.drain().await.unwrap();
                    }
                }
            }
            pool.drain().await.unwrap();
        });
    }

    fn measure(&self, volumes: u64) -> Vec<Row> {
        let all = || self.volumes.clone();
        let pool = || self.pool.clone();
        let some = move |n: u64| format!("base-{}", n * 7919 % volumes);
        let mut rows = Vec::new();
        let create_volume = |n| {
            let all = all();
            async move { drop(create(&all, &format!("new-{n}")).await) }
        };
        rows.push(("create a volume", self.median(create_volume)));
        let take = |n| {
            let all = all();
            async move { drop(snapshot(&all, &all.get(&some(n)).unwrap(), &format!("snap-{n}")).await) }
        };
        rows.push(("take a snapshot", self.median(take)));
        let show = |n| {
            let (all, pool) = (all(), pool());
            async move {
                let volume = all.get(&some(n)).unwrap();
                pool.volume_stats(volume.id()).unwrap();
            }
        };
        rows.push(("find a volume and its figures", self.median(show)));
        let stats = |_| {
            let pool = pool();
            async move { _ = pool.stats() }
        };
        rows.push(("figures of the pool", self.median(stats)));
        self.time({
            let pool = pool();
            async move { pool.drain().await.unwrap() }
        });
        let destage = |volumes: u64| {
            move |n| {
                let (all, pool) = (all(), pool());
                async move {
                    for i in 0..BATCH {
                        // The same volumes each time, far apart, so that only the first writes make maps.
                        let (number, block) = (i % volumes, i / volumes);
                        let volume = all.get(&some(number)).unwrap();
                        let data = vec![Slice::copy_of(&[n as u8; 8192])];
                        pool.write(volume.id(), block * 8192, data).await.unwrap();
                    }
                    pool.drain().await.unwrap();
                }
            }
        };
        for (what, pages, volumes) in [
            ("write and destage 10 blocks of one volume", "pages of the catalog that this writes", 1),
            ("write and destage 10 blocks of 10 volumes", "pages of the catalog that this writes", BATCH),
        ] {
            self.time(destage(volumes)(0));
            let before = pool().stats();
            rows.push((what, self.median(destage(volumes))));
            rows.push((pages, pages_in_checkpoint(&before, &pool().stats())));
        }
        let change = |n| {
            let (all, pool) = (all(), pool());
            async move {
                drop(create(&all, &format!("one-{n}")).await);
                pool.checkpoint().await.unwrap();
            }
        };
        let before = pool().stats();
        rows.push(("create a volume and make a checkpoint", self.median(change)));
        rows.push(("pages of the catalog that this writes", pages_in_checkpoint(&before, &pool().stats())));
        let delete = |name: &'static str| {
            move |n: u64| {
                let all = all();
                async move {
                    let gone = all.get(&format!("{name}-{n}")).unwrap();
                    all.delete(&[gone], Transaction::new()).await.unwrap();
                }
            }
        };
        rows.push(("delete a snapshot", self.median(delete("snap"))));
        rows.push(("delete a volume", self.median(delete("new"))));
        rows
    }
}

/// Pages of the catalog that a checkpoint wrote on average.
fn pages_in_checkpoint(before: &PoolStats, after: &PoolStats) -> f64 {
    let checkpoints = (after.checkpoints - before.checkpoints).max(1);
    (after.catalog_pages - before.catalog_pages) as f64 / checkpoints as f64
}

async fn create(volumes: &Volumes, name: &str) -> Arc<Volume> {
    let (tags, folder) = (Tags::new(), Folder::default());
    let spec = VolumeSpec {
        name: name.into(),
        size_bytes: VOLUME_BYTES,
        block_bytes: 4096,
        thick: false,
        tags,
        folder,
        policy: Default::default(),
    };
    volumes.create(spec, Transaction::new()).await.unwrap()
}

async fn snapshot(volumes: &Volumes, source: &Arc<Volume>, name: &str) -> Arc<Volume> {
    let spec = ForkSpec {
        source: source.clone(),
        name: name.into(),
        kind: OriginKind::Snapshot,
        thick: false,
        compression: None,
        deduplication: None,
        tags: Tags::new(),
        folder: None,
        set: None,
        protected: false,
        retain: None,
    };
    volumes.fork(vec![spec], Transaction::new()).await.unwrap().remove(0)
}

fn measured(volumes: u64, snapshots: u64) -> Vec<Row> {
    let rig = Rig::new();
    let began = Instant::now();
    rig.fill(volumes, snapshots);
    eprintln!("{volumes} volumes and {snapshots} snapshots made in {:.1} s", began.elapsed().as_secs_f64());
    let rows = rig.measure(volumes);
    rig.world.end();
    rows
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap());
    let (volumes, snapshots) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(100_000));
    let few = measured(10, 10);
    let many = measured(volumes, snapshots);
    println!("| operation (µs, median) | 10 volumes, 10 snapshots | {volumes}, {snapshots} | ratio |");
    println!("| --- | --- | --- | --- |");
    for ((what, few), (_, many)) in few.into_iter().zip(many) {
        println!("| {what} | {few:.1} | {many:.1} | {:.2} |", many / few.max(0.01));
    }
}
