//! Watches the wall clock, which administrators of the system can set. Reports when it jumped, and when it is behind
//! the retention clock, which happens only if it was set back.

use quoin_api::Severity;
use quoin_volume::RetentionState;
use quoin_world::Nanos;

/// How far a clock may be off before that is reported: time services correct it by as much now and then.
const TOLERANCE_MS: u64 = 10_000;

/// The wall clock as it was when it was looked at last.
#[derive(Default)]
pub(crate) struct ClockWatch {
    last: Option<(Nanos, u64)>,
    set_back: bool,
}

/// By how much the wall clock is behind the retention clock, if that is more than chance.
pub(crate) fn set_back_ms(state: &RetentionState) -> Option<u64> {
    Some(state.clock_ms.saturating_sub(state.wall_ms)).filter(|behind| *behind > TOLERANCE_MS)
}

impl ClockWatch {
    /// Looks at the clocks; returns what to report about them.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        wall_ms: u64,
        retention: Option<&RetentionState>,
    ) -> Vec<(Severity, String)> {
        let mut told = Vec::new();
        if let Some((then, before_ms)) = self.last.replace((now, wall_ms)) {
            let expected_ms = before_ms + now.since(then).as_millis() as u64;
            let by = |ms: u64| format!("by {} s", ms / 1000);
            let none = "immutable snapshots are kept by a clock of their own";
            if wall_ms + TOLERANCE_MS < expected_ms {
                let by = by(expected_ms - wall_ms);
                told.push((Severity::Warning, format!("the system clock was set back {by}; {none}")));
            } else if expected_ms + TOLERANCE_MS < wall_ms {
                let by = by(wall_ms - expected_ms);
                told.push((Severity::Warning, format!("the system clock was set forward {by}; {none}")));
            }
        }
        let behind = retention.and_then(set_back_ms);
        match (std::mem::replace(&mut self.set_back, behind.is_some()), behind) {
            (false, Some(behind)) => told.push((
                Severity::Critical,
                format!(
                    "the system clock is {} s behind the time that must have passed since snapshots became immutable: it \
                     was set back, or was wrong then. Immutable snapshots are kept by a clock of their own; correct the \
                     system clock",
                    behind / 1000
                ),
            )),
            (true, None) => {
                told.push((Severity::Info, "the system clock is no longer behind".to_owned()));
            }
            _ => {}
        }
        told
    }
}

/// What to report after a pool with immutable snapshots was opened.
pub(crate) fn after_a_pause(state: &RetentionState) -> Option<(Severity, String)> {
    let passed_ms = state.wall_ms.saturating_sub(state.mark.wall_ms);
    (passed_ms > 6 * TOLERANCE_MS).then(|| {
        let severity = if passed_ms > 86_400_000 { Severity::Warning } else { Severity::Notice };
        let text = format!(
            "according to the system clock, the array did not run for {} s. That time does not count towards retention: \
             the {} immutable snapshots are kept as much longer",
            passed_ms / 1000,
            state.snapshots
        );
        (severity, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_volume::ClockMark;

    fn state(clock_ms: u64, wall_ms: u64) -> RetentionState {
        let mark = br#"{"version":1,"mark_ms":0,"wall_ms":1000000}"#;
        let mark = ClockMark::read(Some(mark)).unwrap().unwrap();
        RetentionState { snapshots: 2, clock_ms, wall_ms, mark }
    }

    #[test]
    fn jumps_are_told_once_and_corrections_are_none() {
        let mut watch = ClockWatch::default();
        let mut told = Vec::new();
        for (second, wall_s) in
            [(0, 1000), (1, 1001), (2, 1011), (3, 1004), (4, 5000), (5, 5001), (6, 1007), (7, 1008)]
        {
            let found = watch.look(Nanos(second * 1_000_000_000), wall_s * 1000, None);
            told.extend(found.into_iter().map(|(severity, text)| (second, severity, text)));
        }
        let told: Vec<_> = told.iter().map(|(at, severity, text)| (*at, *severity, &text[..36])).collect();
        assert_eq!(
            told,
            [
                (4, Severity::Warning, "the system clock was set forward by "),
                (6, Severity::Warning, "the system clock was set back by 399"),
            ]
        );
    }

    #[test]
    fn a_clock_behind_the_mark_is_critical_until_it_is_not() {
        let mut watch = ClockWatch::default();
        let mut look = |second: u64, clock_ms, wall_ms| {
            let found = watch.look(Nanos(second), 0, Some(&state(clock_ms, wall_ms)));
            found.into_iter().map(|(severity, _)| severity).collect::<Vec<_>>()
        };
        assert_eq!(look(0, 50_000, 50_000), []);
        assert_eq!(look(1, 50_000, 41_000), []);
        assert_eq!(look(2, 50_000, 39_000), [Severity::Critical]);
        assert_eq!(look(3, 51_000, 40_000), []);
        assert_eq!(look(4, 52_000, 60_000), [Severity::Info]);
    }

    #[test]
    fn time_off_is_told() {
        assert_eq!(after_a_pause(&state(0, 1_060_000)), None);
        assert_eq!(after_a_pause(&state(0, 500)), None);
        assert_eq!(after_a_pause(&state(0, 1_061_000)).unwrap().0, Severity::Notice);
        let (severity, text) = after_a_pause(&state(0, 1_000_000 + 2 * 86_400_000)).unwrap();
        assert_eq!(severity, Severity::Warning);
        assert!(text.contains("172800 s") && text.contains("the 2 immutable"), "{text}");
    }
}
