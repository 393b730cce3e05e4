//! The executor and its disks: a seed decides all, power cuts and kills lose what they may, and faults happen.

use super::*;
use crate::FaultPlan;
use futures_util::future::join_all;
use quoin_world::{Buf, Disk, DiskOp, Event, Slice};

const KIB_4: usize = 4096;

fn write(disk: &SimDisk, block: u64, byte: u8, durable: bool) -> quoin_world::Completion {
    let data = vec![Slice::copy_of(&[byte; KIB_4])];
    disk.submit(DiskOp::Write { offset: block * KIB_4 as u64, data, durable })
}

fn read(disk: &SimDisk, block: u64) -> quoin_world::Completion {
    disk.submit(DiskOp::Read { offset: block * KIB_4 as u64, buf: Buf::zeroed(KIB_4) })
}

/// A busy little world: tasks on all threads that sleep, yield, wait for each other and do I/O.
fn busy(seed: u64) -> (Arc<SimWorld>, Arc<SimDisk>, Vec<u64>) {
    let world = SimWorld::new(seed, SimOptions { data_threads: 3, ..SimOptions::default() });
    let disk = world.disk("d", 1 << 20);
    let order = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(Event::new());
    for i in 0..12u64 {
        let (w, disk, order, done) = (world.clone(), disk.clone(), order.clone(), done.clone());
        let thread = if i % 4 == 3 { Thread::Background } else { Thread::Data(i as usize % 4) };
        world.spawn(
            thread,
            Box::pin(async move {
                assert_eq!(w.current(), Some(thread));
                w.sleep(Duration::from_micros(w.random_u64() % 200)).await;
                write(&disk, i, i as u8 + 1, i % 2 == 0).await.unwrap();
                w.yield_now().await;
                assert_eq!(w.current(), Some(thread));
                order.lock().push(i);
                done.notify();
            }),
        );
    }
    let seen = order.clone();
    world.run(async move { done.until(|| (seen.lock().len() == 12).then_some(())).await }).unwrap();
    let order = order.lock().clone();
    (world, disk, order)
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    let (a, b, c) = (busy(1), busy(1), busy(2));
    assert_eq!((a.0.trace_hash(), a.2.clone()), (b.0.trace_hash(), b.2.clone()));
    assert_ne!(a.0.trace_hash(), c.0.trace_hash());
    assert_ne!(a.2, c.2);
    a.0.crash();
    b.0.crash();
    let content = |disk: &SimDisk| disk.peek(0, 12 * KIB_4);
    assert_eq!(content(&a.1), content(&b.1));
    assert!(
        (0..12).step_by(2).all(|i| a.1.peek(i * KIB_4 as u64, 1)[0] == i as u8 + 1),
        "durable writes stay"
    );
}

#[test]
fn power_cuts_keep_flushed_writes_and_undo_others_in_every_way() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..60 {
        let world = SimWorld::new(seed, SimOptions::default());
        let disk = world.disk("d", 1 << 20);
        let d = disk.clone();
        world
            .run(async move {
                join_all((0..4).map(|i| write(&d, i, 1, false))).await;
                d.submit(DiskOp::Flush).await.unwrap();
                join_all((0..4).map(|i| write(&d, i, 2, false))).await;
            })
            .unwrap();
        world.crash();
        for block in 0..4 {
            let bytes = disk.peek(block * KIB_4 as u64, KIB_4);
            assert!(bytes.iter().all(|&b| b == 1 || b == 2));
            let new = bytes.iter().filter(|&&b| b == 2).count();
            kept += usize::from(new == KIB_4);
            lost += usize::from(new == 0);
            torn += usize::from(new != 0 && new != KIB_4);
        }
    }
    assert!(kept > 20 && lost > 20 && torn > 20, "{kept} kept, {lost} lost, {torn} torn");
}

#[test]
fn a_power_cut_stops_the_run_and_the_next_boot_goes_on() {
    let world = SimWorld::new(3, SimOptions::default());
    let disk = world.disk("d", 1 << 20);
    let second = ByteRange::new(KIB_4 as u64, KIB_4 as u64);
    for cut in [PowerCut::AfterSteps(7), PowerCut::AtDiskOp(3), PowerCut::AtWriteTo(second, 1)] {
        world.cut_power(cut);
        let (d, before) = (disk.clone(), world.now());
        let stopped = world.run(async move {
            for i in 0..100 {
                write(&d, i, 9, true).await.unwrap();
            }
        });
        assert!(matches!(stopped, Err(Stopped::PowerCut { seed: 3, .. })), "{stopped:?}");
        assert!(world.now() > before);
        assert_eq!(disk.peek(0, 1)[0], 9);
        assert_eq!(disk.peek(50 * KIB_4 as u64, 1)[0], 0);
    }
    assert!(world.run(async {}).is_ok());
}

#[test]
fn a_killed_process_leaves_drives_their_caches_until_the_power_is_cut() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..40 {
        let world = SimWorld::new(seed, SimOptions::default());
        let disk = world.disk("d", 1 << 20);
        world.kill_process(PowerCut::AtWriteTo(ByteRange::new(4096, 4096), 1));
        let d = disk.clone();
        let stopped = world.run(async move {
            write(&d, 0, 1, false).await.unwrap();
            write(&d, 1, 2, true).await.unwrap();
        });
        assert!(matches!(stopped, Err(Stopped::PowerCut { .. })));
        assert_eq!(disk.peek(0, 1)[0], 1, "completed, and still in the cache");
        kept += u32::from(disk.peek(4096, 1)[0] == 2);
        world.crash();
        lost += u32::from(disk.peek(0, 1)[0] == 0);
    }
    assert!((1..40).contains(&kept) && (1..40).contains(&lost), "{kept} in flight kept, {lost} lost at last");
}

#[test]
fn deadlocks_panics_and_endless_runs_are_told_with_the_seed() {
    let options = SimOptions { data_threads: 1, step_limit: 1000 };
    let world = SimWorld::new(5, options);
    let stuck = world.run(std::future::pending::<()>());
    assert!(matches!(stuck, Err(Stopped::Deadlock { seed: 5, tasks: 1, .. })));
    world.end();
    let w = world.clone();
    let endless = world.run(async move {
        loop {
            w.yield_now().await;
        }
    });
    assert_eq!(endless, Err::<(), _>(Stopped::Endless { seed: 5, steps: 1000 }));
    world.end();
    let panicked = world.run(async { panic!("so {}", "it goes") });
    let Err::<(), _>(Stopped::Panicked { message, thread, .. }) = panicked else { panic!("{panicked:?}") };
    assert_eq!((message.as_str(), thread), ("so it goes", Thread::Data(0)));
}

#[test]
fn a_yielding_task_lets_every_other_of_its_thread_run() {
    for seed in 0..50 {
        let world = SimWorld::new(seed, SimOptions { data_threads: 1, ..SimOptions::default() });
        let ran = Arc::new(Mutex::new(0));
        let (w, counter) = (world.clone(), ran.clone());
        let seen = world.run(async move {
            for _ in 0..5 {
                let ran = counter.clone();
                w.spawn(Thread::Data(0), Box::pin(async move { *ran.lock() += 1 }));
            }
            w.yield_now().await;
            *counter.lock()
        });
        assert_eq!(seen, Ok(5));
    }
}

#[test]
fn each_fault_of_the_plan_happens() {
    let world = SimWorld::new(11, SimOptions::default());
    let disk = world.disk("d", 1 << 20);
    let plan = |change: fn(&mut FaultPlan)| {
        let mut plan = FaultPlan::default();
        change(&mut plan);
        plan
    };
    let run_write = |byte| {
        let d = disk.clone();
        world.run(async move { write(&d, 1, byte, true).await.map(drop) }).unwrap()
    };
    run_write(1).unwrap();
    disk.set_faults(plan(|p| p.lost_write = 1.0));
    run_write(2).unwrap();
    assert_eq!(disk.peek(4096, 1)[0], 1);
    disk.set_faults(plan(|p| p.misdirected_write = 1.0));
    run_write(3).unwrap();
    assert_eq!(disk.peek(0, 1 << 20).iter().filter(|&&b| b == 3).count(), KIB_4);
    disk.set_faults(plan(|p| p.bit_flip = 1.0));
    run_write(4).unwrap();
    assert_eq!(disk.peek(4096, KIB_4).iter().filter(|&&b| b != 4).count(), 1);
    assert!(disk.undo_lies(quoin_base::ByteRange::new(0, 1 << 20)) >= 8);
    assert_eq!(disk.peek(4096, KIB_4), [4; KIB_4]);
    assert_eq!(disk.peek(0, 1 << 20).iter().filter(|&&b| b == 3).count(), 0);
    disk.set_faults(plan(|p| p.write_error = 1.0));
    let error = run_write(5).unwrap_err().to_string();
    assert_eq!(error, "d: write of 4096 bytes at 4096: simulated fault");
    disk.set_faults(plan(|p| {
        p.read_error = 1.0;
        p.flush_error = 1.0;
        p.only = Some(quoin_base::ByteRange::new(4096, 512));
    }));
    let d = disk.clone();
    let reads = world.run(async move {
        (read(&d, 0).await.is_ok(), read(&d, 1).await.is_ok(), d.submit(DiskOp::Flush).await.is_ok())
    });
    assert_eq!(reads, Ok((true, false, false)));
    disk.set_faults(plan(|p| p.late_read = 1.0));
    let (began, d) = (world.now(), disk.clone());
    world.run(async move { read(&d, 1).await.map(drop) }).unwrap().unwrap();
    assert!(world.now().since(began) > std::time::Duration::from_millis(20));
    disk.set_faults(FaultPlan::default());
    let image = disk.image();
    disk.fail();
    assert!(run_write(6).is_err());
    disk.revive();
    disk.restore(image);
    run_write(7).unwrap();
    let injected = disk.injected();
    assert_eq!((injected.lost_writes, injected.misdirected_writes, injected.bit_flips), (1, 1, 1));
    assert_eq!(injected.late_reads, 1);
    assert_eq!((injected.read_errors, injected.write_errors, injected.flush_errors), (1, 2, 1));
}

#[test]
fn a_spoilt_sector_is_unreadable_until_it_is_written() {
    let world = SimWorld::new(3, SimOptions::default());
    let disk = world.disk("d", 1 << 20);
    let outcome = world.run(async move {
        write(&disk, 1, 7, true).await.unwrap();
        disk.spoil(ByteRange::new(KIB_4 as u64 + 512, 512));
        assert!(read(&disk, 1).await.is_err() && read(&disk, 0).await.is_ok());
        write(&disk, 1, 8, false).await.unwrap();
        assert_eq!(read(&disk, 1).await.unwrap()[0], 8);
        disk.injected().latent_errors
    });
    assert_eq!(outcome, Ok(1));
}

#[test]
fn operations_complete_out_of_order() {
    let world = SimWorld::new(1, SimOptions::default());
    let disk = world.disk("d", 1 << 20);
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = order.clone();
    let tasks = (0..16).map(move |i| {
        let (disk, order) = (disk.clone(), order.clone());
        async move {
            write(&disk, i, 1, false).await.unwrap();
            order.lock().push(i);
        }
    });
    world.run(async move { join_all(tasks).await }).unwrap();
    assert!(!seen.lock().is_sorted());
}

#[test]
fn breaking_the_rules_of_a_disk_panics() {
    let world = SimWorld::new(1, SimOptions::default());
    let disk = world.disk("d", 1 << 20);
    let bad = [
        DiskOp::Read { offset: 100, buf: Buf::zeroed(512) },
        DiskOp::Read { offset: 1 << 20, buf: Buf::zeroed(512) },
        DiskOp::Write { offset: 0, data: vec![Slice::copy_of(&[0; 100])], durable: false },
        DiskOp::Write { offset: 0, data: vec![], durable: false },
        DiskOp::Write {
            offset: 0,
            data: vec![Slice::copy_of(&[0; 1024]).slice(100..100 + 512)],
            durable: false,
        },
    ];
    for op in bad {
        let disk = disk.clone();
        let outcome = world.run(async move { disk.submit(op).await.map(drop).map_err(|e| e.to_string()) });
        assert!(matches!(outcome, Err(Stopped::Panicked { .. })), "{outcome:?}");
    }
}
