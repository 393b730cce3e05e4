//! What counting costs on this machine, in nanoseconds of one thread, alone and while another counts the same:
//! `cargo run --release -p quoin-base --example instrument_cost`.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use quoin_base::metrics::{Counter, LatencyHistogram};
use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const TIMES: u32 = 5_000_000;

fn main() {
    let (counter, histogram, shared) = (Counter::default(), LatencyHistogram::default(), AtomicU64::new(0));
    println!("{:<34} {:>8} {:>8}", "ns", "alone", "of two");
    show("look at the clock", |_| {
        black_box(Instant::now());
    });
    show("count", |_| counter.increment());
    show("count in one number for all", |_| {
        shared.fetch_add(1, Ordering::Relaxed);
    });
    show("record a latency", |n| histogram.record(Duration::from_nanos(u64::from(n) * 100)));
}

fn show(what: &str, act: impl Fn(u32) + Sync) {
    let alone = nanos(&act);
    let stop = AtomicBool::new(false);
    let of_two = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                (0..1000).for_each(&act);
            }
        });
        let nanos = nanos(&act);
        stop.store(true, Ordering::Relaxed);
        nanos
    });
    println!("{what:<34} {alone:>8.1} {of_two:>8.1}");
}

fn nanos(act: &impl Fn(u32)) -> f64 {
    let start = Instant::now();
    (0..TIMES).for_each(act);
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}
