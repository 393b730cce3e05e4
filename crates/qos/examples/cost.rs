//! What limits cost a request that passes at once: `cargo run --release -p quoin-qos --example cost`.
//!
//! Prints nanoseconds for each request: with no limit, with a limit that is never reached, with those of a volume, its policy
//! and its group together, and the last from two threads at once.

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use quoin_qos::{Cost, Limits, Rate, Share, Throttle};
use quoin_world::Nanos;
use std::{
    hint::black_box,
    num::NonZeroU64,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const REQUESTS: u64 = 5_000_000;

fn ns_per_request(throttle: &Arc<Throttle>, clock: Instant) -> f64 {
    let line = throttle.line();
    // One moment for all requests, later than those of the runs before, as those that came with one read have.
    let now = Nanos(clock.elapsed().as_nanos() as u64);
    let begun = Instant::now();
    for id in 0..REQUESTS {
        // As a front end does it; the moment is known to it already.
        if black_box(throttle).is_limited() {
            assert_eq!(line.crowd(now), None);
            assert!(line.admit(id, Cost::of_bytes(8192), now), "the limit is never reached");
        }
    }
    begun.elapsed().as_nanos() as f64 / REQUESTS as f64
}

fn main() {
    let clock = Instant::now();
    let rate = |per_s| NonZeroU64::new(per_s).map(|per_s| Rate { per_s, burst: Duration::from_secs(1) });
    let high = Limits { ios: rate(1 << 40), bytes: rate(1 << 62) };
    let throttle = Arc::new(Throttle::default());
    println!("no limit           {:6.1} ns", ns_per_request(&throttle, clock));
    throttle.configure(&[high], None, Nanos(0));
    println!("of the volume      {:6.1} ns", ns_per_request(&throttle, clock));
    let group = Share::new(high);
    throttle.configure(&[high, high], Some(&group), Nanos(0));
    println!("of all three       {:6.1} ns", ns_per_request(&throttle, clock));
    let other = Arc::new(Throttle::default());
    other.configure(&[high, high], Some(&group), Nanos(0));
    let beside = thread::spawn(move || ns_per_request(&other, clock));
    println!("of two threads     {:6.1} ns", ns_per_request(&throttle, clock));
    drop(beside.join());
}
