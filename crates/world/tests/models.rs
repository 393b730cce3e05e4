//! The waiting primitives between threads, every switch between them drawn by a model checker.

use quoin_base::ByteRange;
use quoin_world::{AsyncMutex, Buf, Completion, DiskError, Event, Gate, atomic::*, one_shot};
use shuttle::{future::block_on, thread};
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

const TIMES: usize = 3000;
const SOME: ByteRange = ByteRange { offset: 0, len: 512 };

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs the model under many schedules.
fn explore(model: fn()) {
    let seed = from_environment("QUOIN_MODEL_SEED", 1);
    let times = TIMES * from_environment("QUOIN_MODEL_TIMES", 1) as usize;
    shuttle::check_random_with_seed(model, seed, times);
}

#[test]
fn who_waits_for_a_condition_is_woken() {
    explore(|| {
        let shared = Arc::new((Event::new(), AtomicU64::new(0)));
        let waiters = [1, 2].map(|least| {
            let shared = shared.clone();
            thread::spawn(move || {
                block_on(shared.0.until(|| (shared.1.load(Ordering::SeqCst) >= least).then_some(())));
            })
        });
        for _ in 0..2 {
            shared.1.fetch_add(1, Ordering::SeqCst);
            shared.0.notify();
        }
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn who_stops_waiting_takes_no_wake_up_from_others() {
    explore(|| {
        let shared = Arc::new((Event::new(), AtomicBool::new(false)));
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || block_on(shared.0.until(|| shared.1.load(Ordering::SeqCst).then_some(()))))
        };
        let fickle = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut waiting = pin!(shared.0.until(|| shared.1.load(Ordering::SeqCst).then_some(())));
                let _ = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            })
        };
        shared.1.store(true, Ordering::SeqCst);
        shared.0.notify();
        waiter.join().unwrap();
        fickle.join().unwrap();
    });
}

#[test]
fn what_is_sent_once_arrives_and_what_is_dropped_is_told() {
    explore(|| {
        let (sender, receiver) = one_shot();
        let (dropped, nothing) = one_shot::<u32>();
        let sending = thread::spawn(move || sender.send(7));
        let dropping = thread::spawn(move || drop(dropped));
        assert_eq!(block_on(receiver), Some(7));
        assert_eq!(block_on(nothing), None);
        sending.join().unwrap();
        dropping.join().unwrap();
    });
}

#[test]
fn an_operation_that_completes_elsewhere_resolves_here() {
    explore(|| {
        let (completer, completion) = Completion::new();
        let (dropped, abandoned) = Completion::new();
        let completing = thread::spawn(move || completer.complete(Ok(Buf::copy_of(&[5]))));
        let dropping = thread::spawn(move || drop(dropped));
        assert_eq!(block_on(completion).unwrap()[..], [5]);
        assert!(matches!(block_on(abandoned), Err(DiskError::Abandoned)));
        completing.join().unwrap();
        dropping.join().unwrap();
    });
}

#[test]
fn a_lock_is_held_by_one_and_gets_to_everyone() {
    explore(|| {
        let shared = Arc::new((AsyncMutex::new(), AtomicU64::new(0)));
        let holders: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    block_on(async {
                        let _held = shared.0.lock().await;
                        assert_eq!(shared.1.fetch_add(1, Ordering::SeqCst), 0, "held twice");
                        shuttle::future::yield_now().await;
                        shared.1.fetch_sub(1, Ordering::SeqCst);
                    });
                })
            })
            .collect();
        // One that gives up while it waits passes its turn on.
        {
            let mut waiting = pin!(shared.0.lock());
            if let Poll::Ready(held) = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                assert_eq!(shared.1.load(Ordering::SeqCst), 0, "held twice");
                drop(held);
            }
        }
        holders.into_iter().for_each(|holder| holder.join().unwrap());
    });
}

#[test]
fn nobody_is_inside_a_closed_gate_and_everyone_gets_in() {
    explore(|| {
        let shared = Arc::new((Gate::default(), AtomicU64::new(0)));
        let visitors = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    block_on(async {
                        let _pass = shared.0.enter(SOME).await;
                        shared.1.fetch_add(1, Ordering::SeqCst);
                        shuttle::future::yield_now().await;
                        shared.1.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            })
        });
        for _ in 0..2 {
            block_on(shared.0.close());
            assert_eq!(shared.1.load(Ordering::SeqCst), 0, "someone is inside");
            thread::yield_now();
            assert_eq!(shared.1.load(Ordering::SeqCst), 0, "someone went in");
            shared.0.open();
        }
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
    });
}

#[test]
fn whoever_reads_modifies_and_writes_alone_loses_nothing() {
    explore(|| {
        // Two halves of one value, each counted up on its own; the gate may close in between.
        let shared = Arc::new((Gate::default(), AtomicU64::new(0), AtomicU64::new(0)));
        let visitors = [1_u64, 1 << 32].map(|one| {
            let shared = shared.clone();
            thread::spawn(move || {
                block_on(async {
                    let _alone = shared.0.enter_alone(SOME).await;
                    let before = shared.1.load(Ordering::SeqCst);
                    shuttle::future::yield_now().await;
                    shared.1.store(before + one, Ordering::SeqCst);
                });
                block_on(async {
                    let _pass = shared.0.enter(SOME).await;
                    shared.1.fetch_add(one, Ordering::SeqCst);
                });
                // Beside it.
                block_on(async { drop(shared.0.enter(ByteRange::new(512, 512)).await) });
                shared.2.fetch_add(1, Ordering::SeqCst);
            })
        });
        {
            let mut given_up = pin!(shared.0.enter_alone(SOME));
            let _ = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        block_on(shared.0.close());
        let inside = shared.1.load(Ordering::SeqCst);
        thread::yield_now();
        assert_eq!(shared.1.load(Ordering::SeqCst), inside, "someone went in");
        shared.0.open();
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
        assert_eq!(shared.1.load(Ordering::SeqCst), 2 << 32 | 2, "a change is lost");
        assert_eq!(shared.2.load(Ordering::SeqCst), 2);
    });
}
