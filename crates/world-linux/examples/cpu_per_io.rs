//! Prints the CPU a thread of the array spends per 8 KiB operation at depth 32.
//!
//! `cargo run --release -p quoin-world-linux --example cpu_per_io -- PATH` makes a file of 256 MiB there.

use quoin_world::{Buf, Disk, DiskOp, Slice, Thread};
use quoin_world_linux::{LinuxWorld, OpenOptions, block_on, open_disk};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

const LEN_BYTES: u64 = 256 << 20;
const IO_BYTES: u64 = 8192;
const DEPTH: u64 = 32;
const PER_TASK: u64 = 3000;

fn main() {
    let path = std::env::args().nth(1).expect("the path of a file to make");
    let disk = open_disk(Path::new(&path), OpenOptions { create_len: Some(LEN_BYTES) }).expect("open");
    let world = LinuxWorld::start(1).expect("start");
    let fill = disk.clone();
    let filled = world.run_on(Thread::Data(0), async move {
        let data = Slice::copy_of(&vec![7; 1 << 20]);
        for offset in (0..LEN_BYTES).step_by(1 << 20) {
            fill.submit(DiskOp::Write { offset, data: vec![data.clone()], durable: false })
                .await
                .expect("fill");
        }
        fill.submit(DiskOp::Flush).await.expect("flush");
    });
    block_on(filled).expect("filled");
    let page = Slice::copy_of(&[8; IO_BYTES as usize]);
    let reading = |offset| DiskOp::Read { offset, buf: Buf::zeroed(IO_BYTES as usize) };
    let writing = move |offset| DiskOp::Write { offset, data: vec![page.clone()], durable: false };
    let page = Slice::copy_of(&[9; IO_BYTES as usize]);
    let durably = move |offset| DiskOp::Write { offset, data: vec![page.clone()], durable: true };
    measure("read", &world, &disk, Arc::new(reading));
    measure("write", &world, &disk, Arc::new(writing));
    measure("durable write", &world, &disk, Arc::new(durably));
    world.shutdown();
}

fn measure(
    what: &str,
    world: &LinuxWorld,
    disk: &Arc<dyn Disk>,
    op: Arc<impl Fn(u64) -> DiskOp + Send + Sync + 'static>,
) {
    let (cpu, began) = (cpu(), Instant::now());
    let tasks: Vec<_> = (0..DEPTH)
        .map(|task| {
            let (disk, op) = (disk.clone(), op.clone());
            world.run_on(Thread::Data(0), async move {
                for i in 0..PER_TASK {
                    let block =
                        (task * PER_TASK + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) % (LEN_BYTES / IO_BYTES);
                    disk.submit(op(block * IO_BYTES)).await.expect("I/O");
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| block_on(task).expect("a task ended"));
    let (spent, took, count) = (self::cpu() - cpu, began.elapsed(), (DEPTH * PER_TASK) as f64);
    let (each_us, rate) = (spent.as_secs_f64() * 1e6 / count, count / took.as_secs_f64());
    println!("{what:>14} of 8 KiB: {each_us:.2} µs of CPU each, {rate:.0} a second");
}

/// CPU of this process, user and system, from `/proc/self/schedstat` of each thread.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    let nanos = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
