//! Times for people.

use quoin_api::Utc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `2026-11-20T13:38:01Z` (ISO 8601, RFC 3339), of milliseconds since the Unix epoch.
pub(crate) fn utc_text(ms: u64) -> String {
    let Utc { year, month, day, hour, minute, second } = Utc::of_ms(ms);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A length of time, parsed from `90s`, `15m`, `1h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub(crate) Duration);

impl Age {
    pub(crate) fn seconds(self) -> u64 {
        self.0.as_secs()
    }

    /// The moment that is so long ago, in milliseconds since the Unix epoch.
    pub(crate) fn ago_ms(self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(self.0).as_millis() as u64
    }
}

/// Reads a length of time: a whole number and one of s, m, h, d or w.
pub(crate) fn parse_age(text: &str) -> Result<Age, String> {
    let wrong =
        || format!("{text:?} is not a length of time; write a number and a unit, such as 90s, 15m, 1h or 7d");
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(Age(Duration::from_secs(u64::from(number) * unit_s)))
}

/// `3d 4h`, `2m 5s`: the two largest units.
pub(crate) fn duration_text(seconds: u64) -> String {
    match seconds {
        s if s >= 86_400 => format!("{}d {}h", s / 86_400, s / 3600 % 24),
        s if s >= 3600 => format!("{}h {}m", s / 3600, s / 60 % 60),
        s if s >= 60 => format!("{}m {}s", s / 60, s % 60),
        s => format!("{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_at_the_edges() {
        assert_eq!(utc_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc_text(951_782_399_000), "2000-02-28T23:59:59Z");
        assert_eq!(utc_text(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(utc_text(1_795_181_881_000), "2026-11-20T13:38:01Z");
        assert_eq!(duration_text(93_784), "1d 2h");
        assert_eq!(duration_text(59), "59s");
    }

    #[test]
    fn ages_are_read() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3600), ("7d", 604_800), ("2w", 1_209_600)] {
            assert_eq!(parse_age(text), Ok(Age(Duration::from_secs(seconds))), "{text}");
        }
        for bad in ["", "h", "1", "1.5h", "-1h", "1y", "1ä", "99999999999d"] {
            assert!(parse_age(bad).unwrap_err().contains("15m"), "{bad}");
        }
    }
}
