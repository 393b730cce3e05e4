//! A long run of random writes on a pool that was just made: what hosts get until the log wraps, and what long after.
//!
//! The log has wrapped when as much was written to segments as all of them hold: from then on every new segment is one
//! that the cleaner has emptied. The first part is what comes before, once destage follows; the last part is the last
//! third of what comes after.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::quoin::{Engine, Serving};

/// How often the engine is asked what it has done.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What the engine had done at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) at_seconds: f64,
    pub(crate) engine: Engine,
}

/// A long run's first part beside its last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Parts {
    pub(crate) wrapped_at_seconds: f64,
    pub(crate) early_mb_per_second: f64,
    pub(crate) late_mb_per_second: f64,
    /// Drive bytes for each byte that hosts wrote, in all the time after the wrap.
    pub(crate) late_drive_read: f64,
    pub(crate) late_drive_written: f64,
}

impl Parts {
    /// Of a pool whose segments hold `capacity_bytes`, and held `placed_bytes` when the engine started to count; or why
    /// the run has no such parts.
    pub(crate) fn of(moments: &[Moment], capacity_bytes: u64, placed_bytes: u64) -> Result<Parts, String> {
        let placed = |moment: &Moment| placed_bytes + moment.engine.placed_bytes();
        let Some(wrap) = moments.iter().position(|moment| placed(moment) >= capacity_bytes) else {
            let last = moments.last().map_or(placed_bytes, placed);
            return Err(format!(
                "the log did not wrap: {} of {} were written",
                crate::units::show_bytes(last),
                crate::units::show_bytes(capacity_bytes)
            ));
        };
        let (before, after) = (&moments[..=wrap], &moments[wrap..]);
        let settled = before.windows(2).position(|pair| pair[1].engine.since(&pair[0].engine).is_settled());
        let early = settled.and_then(|from| Some(Span::between(before.get(from)?, before.last()?)));
        let late = after
            .get(after.len().saturating_sub(1) * 2 / 3..)
            .and_then(|third| Some(Span::between(third.first()?, third.last()?)));
        let all = after.first().zip(after.last()).map(|(first, last)| Span::between(first, last));
        match (early, late, all) {
            (Some(early), Some(late), Some(all)) if early.seconds > 0.0 && late.seconds > 0.0 => Ok(Parts {
                wrapped_at_seconds: moments[wrap].at_seconds,
                early_mb_per_second: early.mb_per_second(),
                late_mb_per_second: late.mb_per_second(),
                late_drive_read: all.of_each(all.work.drive_read_bytes),
                late_drive_written: all.of_each(all.work.drive_written_bytes),
            }),
            _ => Err("the log wrapped too early or too late in the run".to_owned()),
        }
    }
}

/// What was done between two moments.
struct Span {
    seconds: f64,
    work: Engine,
}

impl Span {
    fn between(from: &Moment, to: &Moment) -> Span {
        Span { seconds: to.at_seconds - from.at_seconds, work: to.engine.since(&from.engine) }
    }

    fn mb_per_second(&self) -> f64 {
        self.work.written_bytes as f64 / 1e6 / self.seconds
    }

    fn of_each(&self, bytes: u64) -> f64 {
        bytes as f64 / self.work.written_bytes.max(1) as f64
    }
}

/// Does something, and asks the engine every second meanwhile.
pub(crate) fn watch<T>(serving: &Serving<'_>, act: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Moment>)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| moments(serving, &stop));
        let done = act();
        stop.store(true, Ordering::Relaxed);
        let moments = watcher.join().expect("the watcher panicked");
        Ok((done?, moments?))
    })
}

fn moments(serving: &Serving<'_>, stop: &AtomicBool) -> Result<Vec<Moment>> {
    let zero = Instant::now();
    let mut moments = Vec::new();
    for turn in 1.. {
        let engine = serving.engine()?;
        moments.push(Moment { at_seconds: zero.elapsed().as_secs_f64(), engine });
        let next = zero + SAMPLE_EVERY * turn;
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(moments)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// Each second: MB that hosts wrote, that went to segments, that were read from the drives.
    fn run(seconds: &[(u64, u64, u64)]) -> Vec<Moment> {
        let mut engine = Engine::default();
        let mut moments = vec![Moment { at_seconds: 0.0, engine }];
        for (second, &(written, placed, read)) in seconds.iter().enumerate() {
            engine.written_bytes += written * MB;
            engine.journal_bytes += written * MB;
            engine.drive_written_bytes += (written + placed) * MB;
            engine.drive_read_bytes += read * MB;
            moments.push(Moment { at_seconds: (second + 1) as f64, engine });
        }
        moments
    }

    #[test]
    fn the_first_part_ends_with_the_wrap_and_the_last_is_a_third_of_what_comes_after() {
        // Nothing is destaged in the first second; the log of 600 MB, 200 of them full, wraps after the fifth.
        let mut seconds = vec![(900, 0, 0), (100, 100, 0), (100, 100, 0), (100, 100, 0), (100, 100, 0)];
        seconds.extend([(90, 99, 9); 4]);
        seconds.extend([(80, 88, 8); 2]);
        let parts = Parts::of(&run(&seconds), 600 * MB, 200 * MB).unwrap();
        assert_eq!(parts.wrapped_at_seconds, 5.0);
        assert_eq!((parts.early_mb_per_second, parts.late_mb_per_second), (100.0, 80.0));
        assert!((parts.late_drive_read - 0.1).abs() < 1e-9);
        assert!((parts.late_drive_written - 2.1).abs() < 1e-9);
    }

    #[test]
    fn a_run_without_both_parts_does_not_count() {
        let seconds = [(100, 100, 0); 4];
        assert!(Parts::of(&run(&seconds), 500 * MB, 0).unwrap_err().contains("did not wrap"));
        assert!(Parts::of(&run(&seconds), 400 * MB, 0).unwrap_err().contains("too late"));
        assert!(Parts::of(&run(&seconds), 500 * MB, 500 * MB).unwrap_err().contains("too early"));
        assert!(Parts::of(&[], 1, 0).is_err());
    }
}
