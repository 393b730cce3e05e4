//! What emulated drives are configured to do and what they do in the real world, as a table:
//!
//! `cargo test -p quoin --test calibration -- --ignored --nocapture`

use futures_util::future::join_all;
use quoin_emulate::{EmulatedDrive, Emulation, RamDisk};
use quoin_world::{Buf, Disk, DiskOp, Nanos, Slice, Thread, World};
use quoin_world_linux::{LinuxWorld, block_on};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

const DISK_BYTES: u64 = 1 << 30;
const RUN: Duration = Duration::from_secs(5);
const KIB: usize = 1024;
const DRIVES: u64 = 64;

struct Rig {
    world: Arc<LinuxWorld>,
    disk: Arc<dyn Disk>,
}

impl Rig {
    fn new(world: &Arc<LinuxWorld>, emulation: &Emulation) -> Arc<Self> {
        let drive = EmulatedDrive::new(world.clone(), *emulation);
        let disk = drive.open(Arc::new(RamDisk::new("ram", DISK_BYTES))).unwrap();
        Arc::new(Self { world: world.clone(), disk })
    }

    /// Operations a second of so many workers, each with one operation at a time.
    async fn rate(&self, workers: u64, len: usize, offsets: impl Fn(u64) -> u64 + Copy, write: bool) -> f64 {
        let (begun, until) = (self.world.now(), Nanos(self.world.now().0 + RUN.as_nanos() as u64));
        let (count, data) = (AtomicU64::new(0), Slice::copy_of(&vec![7; len]));
        let worker = || async {
            while self.world.now() < until {
                let offset = offsets(count.fetch_add(1, Ordering::Relaxed));
                let op = if write {
                    DiskOp::Write { offset, data: vec![data.clone()], durable: false }
                } else {
                    DiskOp::Read { offset, buf: Buf::unfilled(len) }
                };
                self.disk.submit(op).await.unwrap();
            }
        };
        join_all((0..workers).map(|_| worker())).await;
        count.into_inner() as f64 / self.world.now().since(begun).as_secs_f64()
    }
}

fn random(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (DISK_BYTES / 4096) * 4096
}

fn sequential(number: u64) -> u64 {
    (number % (DISK_BYTES >> 20)) << 20
}

/// Seconds of CPU that the process has used.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) as f64 / 100.0
}

#[test]
#[ignore = "measures; takes minutes, and wants the machine for itself"]
fn configured_and_measured() {
    let world = LinuxWorld::start(1).unwrap();
    for text in ["7.2k", "10k", "15k", "flash", "nvme,iops=100000"] {
        let emulation: Emulation = text.parse().unwrap();
        println!("{}", emulation.text());
        for (what, workers, len, is_sequential, write) in [
            ("4 KiB random read, depth 1", 1, 4 * KIB, false, false),
            ("4 KiB random read, depth 32", 32, 4 * KIB, false, false),
            ("4 KiB random write, depth 32", 32, 4 * KIB, false, true),
            ("1 MiB sequential read, depth 1", 1, 1024 * KIB, true, false),
            ("1 MiB sequential read, depth 4", 4, 1024 * KIB, true, false),
            ("1 MiB sequential write, depth 4", 4, 1024 * KIB, true, true),
        ] {
            let rig = Rig::new(&world, &emulation);
            let (cpu, begun) = (cpu_s(), Instant::now());
            let rate = world.run_on(Thread::Data(0), async move {
                if is_sequential {
                    rig.rate(workers, len, sequential, write).await
                } else {
                    rig.rate(workers, len, random, write).await
                }
            });
            let rate = block_on(rate).unwrap();
            let cpu = 100.0 * (cpu_s() - cpu) / begun.elapsed().as_secs_f64();
            let (latency_ms, mbps) = (1000.0 * workers as f64 / rate, rate * len as f64 / 1e6);
            println!("  {what:32} {rate:9.1} IOPS {latency_ms:8.3} ms {mbps:7.1} MB/s, CPU {cpu:.1} %");
        }
    }
    // Many drives at once.
    let emulation: Emulation = "15k".parse().unwrap();
    let rigs: Vec<_> = (0..DRIVES).map(|_| Rig::new(&world, &emulation)).collect();
    let (cpu, begun) = (cpu_s(), Instant::now());
    let all = async move { join_all(rigs.iter().map(|rig| rig.rate(4, 4 * KIB, random, false))).await };
    let rates = block_on(world.run_on(Thread::Data(0), all)).unwrap();
    let cpu = 100.0 * (cpu_s() - cpu) / begun.elapsed().as_secs_f64();
    println!("{DRIVES} drives, depth 4 each: {:.0} IOPS, CPU {cpu:.1} %", rates.iter().sum::<f64>());
    world.shutdown();
}
