//! When a schedule's snapshots are due, and which of them are too many: nothing but arithmetic.

use quoin_api::{Every, Rule};

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;
/// 1970-01-04 was a Sunday.
const SUNDAY_MS: u64 = 3 * DAY_MS;

/// A time of day in minutes, of `HH:MM`.
pub(crate) fn parse_at(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let part = |digits: &str, end: u16| {
        let two = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|value| two && *value < end)
    };
    Some(part(hour, 24)? * 60 + part(minute, 60)?)
}

/// `HH:MM`.
pub(crate) fn at_text(at_minute: u16) -> String {
    format!("{:02}:{:02}", at_minute / 60, at_minute % 60)
}

/// How long from one to the next, and a moment at which one was due.
fn rhythm(every: Every, at_minute: u16) -> (u64, u64) {
    let at_ms = u64::from(at_minute) * MINUTE_MS;
    match every {
        Every::Hourly => (60 * MINUTE_MS, at_ms % (60 * MINUTE_MS)),
        Every::Daily => (DAY_MS, at_ms),
        Every::Weekly => (7 * DAY_MS, SUNDAY_MS + at_ms),
    }
}

/// The last moment up to `now_ms` at which one was due; 0 if there was none since 1970.
pub(crate) fn last_due_ms(every: Every, at_minute: u16, now_ms: u64) -> u64 {
    let (period, some) = rhythm(every, at_minute);
    now_ms.checked_sub(some).map_or(0, |since| some + since / period * period)
}

/// The first moment after `now_ms` at which one is due.
pub(crate) fn next_due_ms(every: Every, at_minute: u16, now_ms: u64) -> u64 {
    let (period, some) = rhythm(every, at_minute);
    now_ms.checked_sub(some).map_or(some, |since| some + (since / period + 1) * period)
}

/// The problem of rules, if they have one.
pub(crate) fn rules_problem(rules: &[Rule]) -> Option<String> {
    if rules.is_empty() {
        return Some("it says of nothing how often it is taken".to_owned());
    }
    for (at, Rule { every, keep }) in rules.iter().enumerate() {
        if rules[..at].iter().any(|before| before.every == *every) {
            return Some(format!("{every} is given twice"));
        }
        if !(1..=1000).contains(keep) {
            return Some(format!("{every}:{keep} is not from 1 to 1000 to be kept"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22, a Sunday, at 00:00.
    const DAY: u64 = 1_795_305_600_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;

    #[test]
    fn moments_follow_the_calendar() {
        let at = parse_at("02:30").unwrap();
        let now = DAY + 3 * HOUR_MS;
        for (every, last, next) in [
            (Every::Hourly, DAY + 2 * HOUR_MS + HOUR_MS / 2, DAY + 3 * HOUR_MS + HOUR_MS / 2),
            (Every::Daily, DAY + 2 * HOUR_MS + HOUR_MS / 2, DAY + DAY_MS + 2 * HOUR_MS + HOUR_MS / 2),
            (Every::Weekly, DAY + 2 * HOUR_MS + HOUR_MS / 2, DAY + 7 * DAY_MS + 2 * HOUR_MS + HOUR_MS / 2),
        ] {
            assert_eq!((last_due_ms(every, at, now), next_due_ms(every, at, now)), (last, next), "{every}");
            assert_eq!(last_due_ms(every, at, last), last, "{every}");
            assert!(last_due_ms(every, at, last - 1) < last && next_due_ms(every, at, last - 1) == last);
        }
        assert_eq!(
            last_due_ms(Every::Weekly, at, DAY + 2 * HOUR_MS),
            DAY - 7 * DAY_MS + 2 * HOUR_MS + HOUR_MS / 2
        );
        assert_eq!(
            (last_due_ms(Every::Daily, at, 0), next_due_ms(Every::Daily, at, 0)),
            (0, 150 * MINUTE_MS)
        );
    }

    #[test]
    fn times_and_rules_are_checked() {
        assert_eq!((parse_at("00:00"), parse_at("23:59")), (Some(0), Some(1439)));
        assert_eq!(at_text(150), "02:30");
        for bad in ["", "24:00", "1:00", "12:60", "12", "+1:00", "12:3a"] {
            assert_eq!(parse_at(bad), None, "{bad}");
        }
        let rule = |every, keep| Rule { every, keep };
        assert_eq!(rules_problem(&[rule(Every::Hourly, 24), rule(Every::Daily, 7)]), None);
        for bad in [vec![], vec![rule(Every::Hourly, 0)], vec![rule(Every::Daily, 1), rule(Every::Daily, 2)]]
        {
            assert!(rules_problem(&bad).is_some(), "{bad:?}");
        }
    }
}
