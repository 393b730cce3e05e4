//! Disks and threads of the real world, on real files.

use futures_util::future::join_all;
use quoin_base::SliceId;
use quoin_world::{Buf, Disk, DiskError, DiskOp, Slice, Thread, World, offload};
use quoin_world_linux::{LinuxWorld, OpenError, OpenOptions, block_on, open_disk};
use std::{
    cell::Cell, collections::BTreeSet, future::Future, os::unix::fs::FileExt, path::PathBuf, rc::Rc,
    sync::Arc, thread, time::Duration,
};

const LEN_BYTES: u64 = 16 << 20;

struct Place(tempfile::TempDir);

impl Place {
    /// On the file system of the build: one with direct I/O.
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn disk(&self, name: &str) -> Arc<dyn Disk> {
        open_disk(&self.path(name), OpenOptions { create_len: Some(LEN_BYTES) }).unwrap()
    }
}

fn run<T: Send + 'static>(world: &LinuxWorld, f: impl Future<Output = T> + Send + 'static) -> T {
    block_on(world.run_on(Thread::Data(0), f)).expect("the future ended")
}

fn write(offset: u64, data: Vec<Slice>, durable: bool) -> DiskOp {
    DiskOp::Write { offset, data, durable }
}

fn read(offset: u64, len: usize) -> DiskOp {
    DiskOp::Read { offset, buf: Buf::zeroed(len) }
}

#[test]
fn what_is_written_in_any_way_is_in_the_file() {
    let (place, world) = (Place::new(), LinuxWorld::start(1).unwrap());
    let disk = place.disk("d");
    assert_eq!(disk.len_bytes(), LEN_BYTES);
    assert!([512, 4096].contains(&disk.block_bytes()));
    run(&world, async move {
        disk.submit(write(0, vec![Slice::copy_of(&[1; 8192])], false)).await.unwrap();
        disk.submit(DiskOp::Flush).await.unwrap();
        let whole = Slice::copy_of(&[2; 16384]);
        let pieces = vec![whole.slice(4096..4096 + 4096), Slice::copy_of(&[3; 8192]), whole.slice(..4096)];
        disk.submit(write(8192, pieces, true)).await.unwrap();
        let back = disk.submit(read(0, 24576)).await.unwrap();
        let runs: Vec<_> = back.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        assert_eq!(runs, [(1, 8192), (2, 4096), (3, 8192), (2, 4096)]);
        disk.submit(DiskOp::Discard { offset: 0, len: 8192 }).await.unwrap();
        let measured = disk.instruments().unwrap();
        let histograms =
            [&measured.read, &measured.write, &measured.durable_write, &measured.flush, &measured.discard];
        assert_eq!(histograms.map(|histogram| histogram.snapshot().count()), [1; 5]);
        assert_eq!(measured.submitted.value(), 5);
    });
    world.shutdown();
    let mut byte = [0];
    std::fs::File::open(place.path("d")).unwrap().read_at(&mut byte, 12288).unwrap();
    assert_eq!(byte, [3]);
}

#[test]
fn more_slices_than_one_call_takes() {
    let (place, world) = (Place::new(), LinuxWorld::start(1).unwrap());
    let disk = place.disk("d");
    run(&world, async move {
        let data: Vec<_> = (0..2500u32).map(|i| Slice::copy_of(&[i as u8; 4096])).collect();
        disk.submit(write(4096, data, true)).await.unwrap();
        let back = disk.submit(read(4096, 2500 * 4096)).await.unwrap();
        assert!(back.chunks(4096).enumerate().all(|(i, page)| page.iter().all(|&b| b == i as u8)));
    });
    world.shutdown();
}

#[test]
fn more_operations_than_the_queues_hold_from_all_threads() {
    let (place, world) = (Place::new(), LinuxWorld::start(2).unwrap());
    let disk = place.disk("d");
    let load = |first: u64| {
        let disk = disk.clone();
        async move {
            let blocks = || (0..6000u64).map(|i| i % 600 * 3 + first);
            let writes =
                blocks().map(|b| disk.submit(write(b * 4096, vec![Slice::copy_of(&[b as u8; 4096])], false)));
            join_all(writes).await.into_iter().for_each(|w| drop(w.unwrap()));
            let reads = join_all(blocks().map(|b| disk.submit(read(b * 4096, 4096)))).await;
            blocks().zip(reads).all(|(b, r)| r.unwrap().iter().all(|&byte| byte == b as u8))
        }
    };
    let threads = [Thread::Data(0), Thread::Data(1), Thread::Background];
    let ends: Vec<_> = threads.iter().zip(0..).map(|(&t, first)| world.run_on(t, load(first))).collect();
    assert_eq!(block_on(join_all(ends)), [Some(true); 3]);
    world.shutdown();
}

#[test]
fn misuse_is_an_error_and_not_a_panic() {
    let (place, world) = (Place::new(), LinuxWorld::start(1).unwrap());
    let disk = place.disk("d");
    let outside = block_on(disk.submit(read(0, 4096))).unwrap_err().to_string();
    assert!(
        outside.ends_with("/d: read of 4096 bytes at 0: a disk can only be used on a thread of the array")
    );
    run(&world, async move {
        for op in
            [read(LEN_BYTES, 4096), read(u64::MAX - 4095, 4096), read(100, 4096), read(0, 100), read(0, 0)]
        {
            let error = disk.submit(op).await.unwrap_err();
            assert!(
                error.to_string().contains("not inside its 16777216 bytes or not in units of"),
                "{error}"
            );
        }
        assert!(disk.submit(write(0, vec![], true)).await.is_err());
    });
    world.shutdown();
}

#[test]
fn a_file_that_shrank_is_an_error() {
    let (place, world) = (Place::new(), LinuxWorld::start(1).unwrap());
    let disk = place.disk("d");
    std::fs::OpenOptions::new().write(true).open(place.path("d")).unwrap().set_len(4096).unwrap();
    let read = run(&world, async move { disk.submit(read(0, 8192)).await });
    assert!(matches!(read, Err(DiskError::Io { operation: "read", len: 8192, .. })), "{read:?}");
    world.shutdown();
}

#[test]
fn one_opener_at_a_time() {
    let place = Place::new();
    let disk = place.disk("d");
    let path = place.path("d");
    let again = open_disk(&path, OpenOptions::default()).map(drop).unwrap_err().to_string();
    assert!(again.contains("/d: another process uses it"), "{again}");
    let other_process =
        || std::process::Command::new("flock").arg("-n").arg(&path).arg("true").status().unwrap().success();
    assert!(!other_process());
    drop(disk);
    assert!(other_process());
    open_disk(&path, OpenOptions::default()).unwrap();
}

#[test]
fn what_cannot_be_a_drive_is_refused() {
    let place = Place::new();
    let open = |name: &str, create_len| open_disk(&place.path(name), OpenOptions { create_len }).map(drop);
    assert!(matches!(open("none", None), Err(OpenError::Io { operation: "open it", .. })));
    open("d", Some(LEN_BYTES)).unwrap();
    open("d", Some(LEN_BYTES)).unwrap();
    let other = open("d", Some(4096)).unwrap_err().to_string();
    assert!(other.ends_with("/d: exists with 16777216 bytes, not 4096; remove it or ask for its size"));
    assert!(matches!(open(".", None), Err(OpenError::NotADrive { .. })));
}

#[test]
fn tasks_run_on_their_threads_and_hop_between_them() {
    let world = LinuxWorld::start(2).unwrap();
    assert_eq!((world.current(), world.data_threads()), (None, 2));
    let w = world.clone();
    let seen = run(&world, async move {
        let before = w.now();
        let (sender, receiver) = quoin_world::one_shot();
        let inner = w.clone();
        w.spawn(
            Thread::Background,
            Box::pin(async move {
                inner.sleep(Duration::from_millis(1)).await;
                sender.send(inner.current());
            }),
        );
        w.yield_now().await;
        assert_eq!(receiver.await, Some(Some(Thread::Background)));
        assert!(w.now() > before && w.wall_clock_ms() > 1_700_000_000_000);
        assert_ne!(w.random_u64(), w.random_u64());
        w.current()
    });
    assert_eq!(seen, Some(Thread::Data(0)));
    let (sender, receiver) = quoin_world::one_shot();
    world.spawn_local_on(Thread::Data(1), move || {
        let kept_here = Rc::new(Cell::new(5));
        async move {
            tokio::task::yield_now().await;
            sender.send(kept_here.get());
        }
    });
    assert_eq!(block_on(receiver), Some(5));
    world.shutdown();
}

#[test]
fn every_committer_has_a_thread_of_its_own_once_it_is_given_a_task() {
    let place = Place::new();
    let world = LinuxWorld::start(1).unwrap();
    let disk = place.disk("d");
    let who = |thread| {
        let (w, disk) = (world.clone(), disk.clone());
        let seen = world.run_on(thread, async move {
            disk.submit(write(0, vec![Slice::copy_of(&[1; 4096])], true)).await.unwrap();
            w.yield_now().await;
            (w.current(), thread::current().id())
        });
        block_on(seen).expect("the future ended")
    };
    let threads = [
        Thread::Data(0),
        Thread::Background,
        Thread::Committer(SliceId(0)),
        Thread::Committer(SliceId(3)),
        Thread::Committer(SliceId(0)),
    ];
    let seen = threads.map(who);
    assert_eq!(seen.map(|(current, _)| current), threads.map(Some));
    let ids: BTreeSet<_> = seen.iter().map(|(_, id)| format!("{id:?}")).collect();
    assert_eq!((ids.len(), seen[2].1), (4, seen[4].1), "it has one thread");
    world.shutdown();
    for slice in [0, 7] {
        let late = world.run_on(Thread::Committer(SliceId(slice)), async {});
        assert_eq!(block_on(late), None, "no thread is made after the end");
    }
}

#[test]
fn workers_do_what_they_are_given_and_end_with_the_world() {
    let world = LinuxWorld::start(1).unwrap();
    let w = world.clone();
    let seen = run(&world, async move {
        let jobs: Vec<_> =
            (0..100u64).map(|n| offload(&*w, move || (n * n, thread::current().id()))).collect();
        let done: Vec<_> = join_all(jobs).await.into_iter().flatten().collect();
        assert_eq!(done.iter().map(|(square, _)| square).sum::<u64>(), 328_350);
        let here = thread::current().id();
        (done.iter().any(|(_, id)| *id == here), w.workers())
    });
    assert_eq!(seen.0, seen.1 == 0, "without workers it is done at once");
    world.shutdown();
    assert_eq!(block_on(offload(&*world, || 1)), None);
}

#[test]
fn shutdown_drops_tasks_after_their_operations_and_may_come_twice() {
    struct OnDrop(Arc<std::sync::atomic::AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Release);
        }
    }
    let (place, world) = (Place::new(), LinuxWorld::start(1).unwrap());
    let disk = place.disk("d");
    let dropped = OnDrop(Arc::default());
    let flag = dropped.0.clone();
    let endless = disk.clone();
    world.spawn(
        Thread::Data(0),
        Box::pin(async move {
            let _dropped = dropped;
            loop {
                let reads = (0..64).map(|i| endless.submit(read(i * 8192, 8192)));
                join_all(reads).await;
            }
        }),
    );
    let never = world.run_on(Thread::Background, std::future::pending::<()>());
    let w = world.clone();
    run(&world, async move { w.sleep(Duration::from_millis(20)).await });
    world.shutdown();
    world.shutdown();
    assert!(flag.load(std::sync::atomic::Ordering::Acquire));
    assert_eq!(block_on(never), None);
    assert_eq!(block_on(world.run_on(Thread::Data(0), async {})), None);
    drop(disk);
    place.disk("d");
}

#[test]
fn a_panic_of_run_on_is_told_by_none() {
    let world = LinuxWorld::start(1).unwrap();
    let outcome: Option<()> =
        block_on(world.run_on(Thread::Data(0), async { panic!("as the test wants it") }));
    assert_eq!(outcome, None);
    assert_eq!(run(&world, async { 1 }), 1);
    world.shutdown();
}

#[test]
fn precise_timers_are_far_better_than_a_millisecond_and_do_not_depend_on_each_other() {
    let world = LinuxWorld::start(1).unwrap();
    let here = world.clone();
    let mut late = run(&world, async move {
        let lateness = async |us: u64| {
            let (asked, begun) = (Duration::from_micros(us), here.now());
            here.sleep_precisely(asked).await;
            let took = here.now().since(begun);
            assert!(took >= asked, "{took:?} for {asked:?}");
            took - asked
        };
        // One after the other, then at once and out of order.
        let mut late = Vec::new();
        for us in [100; 200] {
            late.push(lateness(us).await);
        }
        late.extend(join_all((0..100).rev().map(|n| lateness(100 * n))).await);
        late
    });
    late.sort_unstable();
    // Half of them: other processes take the processor away now and then.
    assert!(late[late.len() / 2] < Duration::from_micros(500), "{late:?}");
    // Elsewhere it is an ordinary timer, and a world ends with timers running.
    let forgotten = world.clone();
    drop(
        world.run_on(
            Thread::Data(0),
            async move { forgotten.sleep_precisely(Duration::from_secs(600)).await },
        ),
    );
    world.shutdown();
}
