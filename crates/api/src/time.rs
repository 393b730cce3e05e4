//! The calendar, in UTC.

/// A moment as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utc {
    /// Year.
    pub year: u64,
    /// Month, from 1.
    pub month: u64,
    /// Day of the month, from 1.
    pub day: u64,
    /// Hour.
    pub hour: u64,
    /// Minute.
    pub minute: u64,
    /// Second.
    pub second: u64,
}

impl Utc {
    /// Of milliseconds since the Unix epoch.
    pub fn of_ms(ms: u64) -> Self {
        let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
        let (year, month, day) = civil(days);
        Self { year, month, day, hour: second / 3600, minute: second / 60 % 60, second: second % 60 }
    }

    /// `20261120-133801`, which names sort by.
    pub fn stamp(&self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }
}

/// Year, month and day of a number of days since 1970-01-01, in the proleptic Gregorian calendar. Counts in
/// years that begin in March, so that the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_right_at_the_edges() {
        assert_eq!(Utc::of_ms(0).stamp(), "19700101-000000");
        assert_eq!(Utc::of_ms(951_782_399_000).stamp(), "20000228-235959");
        assert_eq!(Utc::of_ms(951_782_400_000).stamp(), "20000229-000000");
        assert_eq!(Utc::of_ms(1_795_181_881_999).stamp(), "20261120-133801");
    }
}
