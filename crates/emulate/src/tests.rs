//! Emulated drives in the simulated world: rates, latencies, queues and faults.

use super::*;
use futures_util::future::join_all;
use quoin_world::{Buf, Completion, Disk, DiskError, DiskOp, Nanos, Slice, Thread, World};
use quoin_world_sim::{SimOptions, SimWorld};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const DISK_BYTES: u64 = 1 << 30;
const KIB: usize = 1024;

#[derive(Clone)]
struct Rig {
    world: Arc<SimWorld>,
    drive: Arc<EmulatedDrive>,
    disk: Arc<dyn Disk>,
    below: Arc<RamDisk>,
}

fn rig(emulation: &str) -> Rig {
    rig_in(SimOptions::default(), emulation)
}

fn rig_in(options: SimOptions, emulation: &str) -> Rig {
    let world = SimWorld::new(1, options);
    let drive = EmulatedDrive::new(world.clone(), emulation.parse().unwrap());
    let below = Arc::new(RamDisk::new("d0", DISK_BYTES));
    let disk = drive.open(below.clone()).unwrap();
    Rig { world, drive, disk, below }
}

impl Rig {
    fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        test: impl FnOnce(Rig) -> F,
    ) -> T {
        let done = self.world.run(test(self.clone())).unwrap();
        self.world.end();
        done
    }

    fn read(&self, offset: u64, len: usize) -> Completion {
        self.disk.submit(DiskOp::Read { offset, buf: Buf::zeroed(len) })
    }

    fn write(&self, offset: u64, len: usize, fill: u8, durable: bool) -> Completion {
        let data = vec![Slice::copy_of(&vec![fill; len])];
        self.disk.submit(DiskOp::Write { offset, data, durable })
    }

    /// How long `op` takes.
    async fn time(&self, op: impl FnOnce(&Self) -> Completion) -> Duration {
        let begun = self.world.now();
        op(self).await.unwrap();
        self.world.now().since(begun)
    }

    /// Operations a second of so many workers, each with one operation of `len` bytes at a time.
    async fn rate(&self, workers: u64, len: usize, offsets: impl Fn(u64) -> u64 + Copy) -> f64 {
        let (begun, until) = (self.world.now(), Nanos(self.world.now().0 + 2_000_000_000));
        let count = AtomicU64::new(0);
        let worker = || async {
            while self.world.now() < until {
                let offset = offsets(count.fetch_add(1, Ordering::Relaxed));
                self.read(offset, len).await.unwrap();
            }
        };
        join_all((0..workers).map(|_| worker())).await;
        count.into_inner() as f64 / self.world.now().since(begun).as_secs_f64()
    }
}

fn random(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (DISK_BYTES / 4096 - 256) * 4096
}

#[track_caller]
fn near(measured: f64, wanted: f64) {
    assert!((measured / wanted - 1.0).abs() < 0.05, "{measured} instead of {wanted}");
}

#[test]
fn random_operations_have_the_rate_and_the_latency_that_are_asked_for() {
    // The tasks of a simulated world take time as well: too much of it for half a million operations a second.
    for text in ["flash", "nvme,iops=100000", "15k", "10k", "7.2k"] {
        let emulation: Emulation = text.parse().unwrap();
        let (iops, latency_s) = (f64::from(emulation.iops()), emulation.latency().duration().as_secs_f64());
        rig(text).run(async move |rig| {
            near(rig.time(|rig| rig.read(random(1), 4 * KIB)).await.as_secs_f64(), latency_s);
            near(rig.rate(1, 4 * KIB, random).await, iops.min(1.0 / latency_s));
            near(rig.rate(64, 4 * KIB, random).await, iops);
        });
    }
    rig("flash,iops=10000,latency_ms=0.4,mbps=100").run(async |rig| {
        for (workers, wanted) in [(1, 2500.0), (2, 5000.0), (4, 10_000.0), (32, 10_000.0)] {
            near(rig.rate(workers, 4 * KIB, random).await, wanted);
        }
        // Large ones are limited by the link.
        near(rig.rate(32, 64 * KIB, random).await, 100e6 / 65536.0);
    });
}

#[test]
fn sequential_operations_have_the_bandwidth_that_is_asked_for() {
    for technology in Technology::ALL {
        let bytes_per_s = f64::from(Emulation::of(technology).mbps()) * 1e6;
        rig(technology.name()).run(async move |rig| {
            for (workers, len) in [(8, 128 * KIB), (32, 1024 * KIB)] {
                let end = DISK_BYTES / len as u64;
                let rate = rig.rate(workers, len, |number| number % end * len as u64).await;
                near(rate * len as f64, bytes_per_s);
            }
        });
    }
}

#[test]
fn a_queue_is_worked_off_in_order() {
    rig("7.2k").run(async |rig| {
        let begun = rig.world.now();
        let ended = join_all((1..=4).map(|number| {
            let (world, read) = (rig.world.clone(), rig.read(random(number), 4 * KIB));
            async move { read.await.map(|_| world.now().since(begun).as_secs_f64()) }
        }));
        for (number, after) in ended.await.into_iter().enumerate() {
            near(after.unwrap(), (number + 1) as f64 * 0.0125);
        }
    });
}

#[test]
fn heads_go_on_where_they_are() {
    rig("15k,iops=200,latency_ms=5").run(async |rig| {
        let (position, transfer) = (0.005, 65536.0 / 150e6);
        near(rig.time(|rig| rig.write(0, 64 * KIB, 1, false)).await.as_secs_f64(), position + transfer);
        // What follows at once, or soon, costs its transfer; what must be on the platter waits for it to come round.
        near(rig.time(|rig| rig.write(65536, 64 * KIB, 1, false)).await.as_secs_f64(), transfer);
        rig.world.sleep(Duration::from_millis(3)).await;
        let buffered = rig.time(|rig| rig.write(131072, 64 * KIB, 1, false)).await;
        assert!(buffered < Duration::from_micros(20), "into the buffer: {buffered:?}");
        near(rig.time(|rig| rig.write(196608, 64 * KIB, 1, true)).await.as_secs_f64(), position + transfer);
        rig.world.sleep(Duration::from_secs(1)).await;
        near(rig.time(|rig| rig.read(262144, 64 * KIB)).await.as_secs_f64(), position + transfer);
        // Durable ones that are queued follow each other without losing a turn.
        let begun = rig.world.now();
        join_all((0..4).map(|n| rig.write((8 << 20) + n * 65536, 64 * KIB, 1, true))).await;
        near(rig.world.now().since(begun).as_secs_f64(), position + 4.0 * transfer);
        near(rig.time(|rig| rig.disk.submit(DiskOp::Flush)).await.as_secs_f64(), position);
    });
    let flush = rig("flash").run(async |rig| rig.time(|rig| rig.disk.submit(DiskOp::Flush)).await);
    assert!(flush < Duration::from_micros(20), "{flush:?}");
}

#[test]
fn an_idle_drive_does_nothing() {
    // The run fails if an hour takes more than a few steps.
    rig_in(SimOptions { step_limit: 30, ..SimOptions::default() }, "15k").run(async |rig| {
        rig.read(0, 4 * KIB).await.unwrap();
        rig.world.sleep(Duration::from_millis(50)).await;
        let reads = rig.disk.instruments().unwrap().read.snapshot();
        near(reads.mean().unwrap().as_secs_f64(), 0.0055);
        rig.world.sleep(Duration::from_secs(3600)).await;
    });
}

fn errno(outcome: Result<Buf, DiskError>) -> Option<i32> {
    match outcome {
        Err(DiskError::Io { source, .. }) => source.raw_os_error(),
        _ => None,
    }
}

#[test]
fn a_drive_fails_is_slow_and_is_back_with_its_content() {
    rig("15k").run(async |rig| {
        rig.write(0, 4 * KIB, 7, true).await.unwrap();
        let under_way = rig.read(0, 4 * KIB);
        rig.drive.set_condition(Condition::Failing);
        assert_eq!(errno(under_way.await), Some(5));
        assert_eq!(errno(rig.write(0, 4 * KIB, 8, true).await), Some(5));
        rig.drive.set_condition(Condition::Slow(10));
        rig.world.sleep(Duration::from_secs(1)).await;
        near(rig.time(|rig| rig.read(1 << 20, 4 * KIB)).await.as_secs_f64(), 0.055);
        rig.drive.set_condition(Condition::Healthy);
        assert_eq!(rig.read(0, 4 * KIB).await.unwrap()[..], [7; 4096]);
    });
}

#[test]
fn a_drive_that_hangs_answers_and_acts_when_it_is_back() {
    rig("flash").run(async |rig| {
        rig.write(0, 4 * KIB, 1, true).await.unwrap();
        let earlier = rig.read(0, 4 * KIB);
        rig.drive.set_condition(Condition::Hung);
        let later = rig.write(0, 4 * KIB, 2, true);
        let (earlier_is, later_is) = (earlier.outstanding(), later.outstanding());
        rig.world.sleep(Duration::from_secs(60)).await;
        assert!(!earlier_is.is_over() && !later_is.is_over());
        assert!(matches!(rig.drive.corrupt(0, 1, 1).await, Err(EmulateError::Hung)));
        let below = rig.below.submit(DiskOp::Read { offset: 0, buf: Buf::zeroed(4096) });
        assert_eq!(below.await.unwrap()[0], 1, "nothing reaches the disk below");
        rig.drive.set_condition(Condition::Healthy);
        assert_eq!(earlier.await.unwrap()[0], 1);
        later.await.unwrap();
        assert_eq!(rig.read(0, 4 * KIB).await.unwrap()[0], 2);
    });
}

#[test]
fn a_detached_drive_has_to_be_opened_again() {
    rig("flash").run(async |rig| {
        rig.drive.set_condition(Condition::Hung);
        let stuck = rig.write(0, 4 * KIB, 1, true);
        rig.drive.set_condition(Condition::Detached);
        assert_eq!(errno(stuck.await), Some(19));
        assert!(!rig.drive.is_attached());
        assert!(matches!(rig.drive.open(rig.below.clone()).map(drop), Err(EmulateError::Detached)));
        assert!(matches!(rig.drive.corrupt(0, 1, 1).await, Err(EmulateError::NotOpen)));
        rig.drive.set_condition(Condition::Healthy);
        assert_eq!(errno(rig.read(0, 4 * KIB).await), Some(19), "the opening of before is over");
        let again = rig.drive.open(rig.below.clone()).unwrap();
        again.submit(DiskOp::Flush).await.unwrap();
    });
}

/// The pages of a drive that differ after pages were corrupted, beside those it says.
fn corrupted(seed: u64, from: u64) -> (Vec<u64>, Vec<u64>) {
    rig("nvme").run(async move |rig| {
        // Some data in the first and in the last MiB of a sparse drive.
        for number in 0..64 {
            let offset = if number % 2 == 0 { number * 4096 } else { DISK_BYTES - number * 4096 };
            rig.write(offset, 4 * KIB, 1 + number as u8, true).await.unwrap();
        }
        let busy = Arc::new(AtomicU64::new(0));
        let (other, counted) = (rig.clone(), busy.clone());
        let writer = async move {
            for _ in 0..1000 {
                other.write(1 << 20, 4 * KIB, 0, true).await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        rig.world.spawn(Thread::Data(1), Box::pin(writer));
        let corruption = rig.drive.corrupt(from, 10, seed).await.unwrap();
        assert!(busy.load(Ordering::Relaxed) < 1000, "it went on beside");
        assert_eq!(rig.drive.state().corrupted_pages, 10);
        let mut differ = Vec::new();
        for number in 0..64 {
            let offset = if number % 2 == 0 { number * 4096 } else { DISK_BYTES - number * 4096 };
            let page = rig.read(offset, 4 * KIB).await.unwrap();
            match page.iter().filter(|byte| **byte != 1 + number as u8).count() {
                0 => {}
                1 => differ.push(offset),
                bytes => panic!("{bytes} bytes of a page"),
            }
        }
        differ.sort_unstable();
        (corruption.offsets, differ)
    })
}

#[test]
fn corruption_hits_pages_that_hold_something_and_follows_from_its_seed() {
    let (told, differ) = corrupted(1, 0);
    assert_eq!(told, differ);
    assert_eq!(told.len(), 10);
    assert_eq!(corrupted(1, 0).0, told);
    assert_ne!(corrupted(2, 0).0, told);
    let (told, differ) = corrupted(1, 1 << 20);
    assert!(told == differ && told.iter().all(|offset| *offset >= 1 << 20), "{told:?}");
    rig("nvme").run(async |rig| {
        assert!(matches!(rig.drive.corrupt(0, 1, 1).await, Err(EmulateError::Blank)));
    });
}
