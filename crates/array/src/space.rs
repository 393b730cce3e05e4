//! Watches how full the pool is: says when a threshold is reached, and when there is space again.
//!
//! A level is left only when use has fallen well below its threshold, so that use that oscillates around a threshold
//! does not cause an event each time. Data that the last process left in the journal is charged as new data until it is
//! destaged. It is not counted here until then, so that a well filled pool is not reported as full after a restart.

use quoin_api::{Severity, SpaceLevel};
use quoin_base::GIB;
use quoin_pool::{Pool, PoolStats};
use quoin_volume::Volume;
use std::{collections::BTreeSet, sync::Arc};

/// Points below its threshold at which a level is left.
const HYSTERESIS_PERCENT: f64 = 2.0;
/// The most space that must be free again before a full pool no longer counts as full.
const ROOM_AGAIN_MAX_BYTES: u64 = GIB;

/// How much of the space for host data may be used before there is something to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpacePercents {
    /// From here on a notice is in order.
    pub notice: u8,
    /// From here on a warning is in order.
    pub warning: u8,
}

impl From<(u8, u8)> for SpacePercents {
    fn from((notice, warning): (u8, u8)) -> Self {
        Self { notice, warning }
    }
}

impl Default for SpacePercents {
    fn default() -> Self {
        Self { notice: 60, warning: 80 }
    }
}

/// What [`SpaceWatch::look`] found.
pub(crate) struct Found {
    pub(crate) severity: Severity,
    pub(crate) text: String,
    /// A threshold was reached from below.
    pub(crate) is_rise: bool,
}

/// The level the pool's space is at.
pub(crate) struct SpaceWatch {
    percents: SpacePercents,
    level: SpaceLevel,
    refused_writes: u64,
    /// The charge of the data that was in the journal when the pool was opened and may not be destaged yet.
    replayed_bytes: u64,
}

/// Bytes that are used by host data, on drives or on the way there, or kept for volumes.
pub(crate) fn taken_bytes(stats: &PoolStats) -> u64 {
    stats.live_bytes + stats.buffered_bytes + stats.reserved_unmapped_bytes
}

/// The used part of the space for host data, in percent.
pub(crate) fn used_percent(stats: &PoolStats) -> f64 {
    taken_bytes(stats) as f64 * 100.0 / stats.usable_bytes.max(1) as f64
}

/// How much must be free again before a full pool no longer counts as full.
fn room_again_bytes(stats: &PoolStats) -> u64 {
    (stats.usable_bytes / 50).min(ROOM_AGAIN_MAX_BYTES)
}

/// How much space deleting all of these frees.
pub(crate) fn freed_bytes(pool: &Pool, volumes: &[Arc<Volume>]) -> u64 {
    pool.space_of(&volumes.iter().map(|volume| volume.id()).collect::<BTreeSet<_>>()).freed_bytes
}

impl SpaceWatch {
    pub(crate) fn new(percents: SpacePercents) -> Self {
        Self { percents, level: SpaceLevel::Normal, refused_writes: 0, replayed_bytes: 0 }
    }

    /// The pool was opened.
    pub(crate) fn opened(&mut self, stats: &PoolStats) {
        self.replayed_bytes = stats.buffered_bytes;
    }

    pub(crate) fn level(&self) -> SpaceLevel {
        self.level
    }

    /// Whether the pool needs the space that the recycle bin holds: from halfway between the warning threshold and a
    /// full pool. Buffered data may replace data on the drives, so it does not count unless the pool is full. Space
    /// that is being reclaimed counts as free.
    pub(crate) fn needs_bin(&self, stats: &PoolStats) -> bool {
        let percent = u64::midpoint(self.percents.warning.into(), 100);
        let taken = (stats.live_bytes + stats.reserved_unmapped_bytes).saturating_sub(stats.removing_bytes);
        let buffered = stats.buffered_bytes.saturating_sub(self.replayed_bytes);
        let room = (stats.free_bytes + stats.removing_bytes).saturating_sub(buffered);
        taken >= stats.usable_bytes / 100 * percent
            || self.level == SpaceLevel::Full && room < room_again_bytes(stats)
    }

    /// The thresholds in bytes.
    pub(crate) fn thresholds_bytes(&self, stats: &PoolStats) -> Vec<u64> {
        let part = |percent: u8| stats.usable_bytes / 100 * u64::from(percent);
        vec![part(self.percents.notice), part(self.percents.warning), stats.usable_bytes]
    }

    /// Looks at the pool; what changed since it was looked at before.
    pub(crate) fn look(&mut self, stats: &PoolStats) -> Option<Found> {
        let before = self.level;
        // Replayed data cannot be more than all buffered data.
        self.replayed_bytes = self.replayed_bytes.min(stats.buffered_bytes);
        let stats = &PoolStats { buffered_bytes: stats.buffered_bytes - self.replayed_bytes, ..*stats };
        let level = self.level_of(stats);
        // Another instance of the pool counts anew.
        self.refused_writes = stats.refused_writes;
        self.level = level;
        let share = format!(
            "{:.0} % of the space for host data is used or reserved, {} of {} bytes",
            used_percent(stats),
            taken_bytes(stats),
            stats.usable_bytes
        );
        let (severity, text) = match level {
            _ if level == before => return None,
            SpaceLevel::Full => {
                let text = format!(
                    "full: {share}; writes that need space fail until space is freed: delete or unmap"
                );
                (Severity::Critical, text)
            }
            _ if before == SpaceLevel::Full => {
                (Severity::Notice, format!("space is available again, writes succeed: {share}"))
            }
            SpaceLevel::Warning => {
                let text = format!("threshold of {} % reached: {share}", self.percents.warning);
                (Severity::Warning, text)
            }
            SpaceLevel::Notice if level > before => {
                let text = format!("threshold of {} % reached: {share}", self.percents.notice);
                (Severity::Notice, text)
            }
            SpaceLevel::Notice => {
                (Severity::Info, format!("below the threshold of {} % again: {share}", self.percents.warning))
            }
            SpaceLevel::Normal => {
                (Severity::Info, format!("below the threshold of {} % again: {share}", self.percents.notice))
            }
        };
        Some(Found { severity, text, is_rise: level > before })
    }

    fn level_of(&self, stats: &PoolStats) -> SpaceLevel {
        let room = stats.free_bytes.saturating_sub(stats.buffered_bytes);
        let refused = stats.refused_writes > self.refused_writes;
        if room == 0 || refused || (self.level == SpaceLevel::Full && room < room_again_bytes(stats)) {
            return SpaceLevel::Full;
        }
        let used = used_percent(stats);
        let at = |level: SpaceLevel, percent: u8| {
            let leave = if self.level >= level { HYSTERESIS_PERCENT } else { 0.0 };
            used >= f64::from(percent) - leave
        };
        if at(SpaceLevel::Warning, self.percents.warning) {
            SpaceLevel::Warning
        } else if at(SpaceLevel::Notice, self.percents.notice) {
            SpaceLevel::Notice
        } else {
            SpaceLevel::Normal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(live_percent: u64, refused_writes: u64) -> PoolStats {
        let usable_bytes = 100 << 30;
        let (live_bytes, free_bytes) = (live_percent << 30, (100 - live_percent) << 30);
        PoolStats { usable_bytes, live_bytes, free_bytes, refused_writes, ..PoolStats::default() }
    }

    #[test]
    fn each_threshold_is_told_once_on_the_way_up_and_once_on_the_way_down() {
        let mut watch = SpaceWatch::new(SpacePercents::default());
        let mut told = Vec::new();
        for (percent, refused) in [
            (10, 0),
            (60, 0),
            (61, 0),
            (59, 0), // not far enough
            (60, 0),
            (81, 0),
            (79, 0),
            (99, 3),
            (100, 3),
            (100, 9),
            (90, 9),
            (78, 9),
            (77, 9),
            (57, 9),
            (95, 9),
            (20, 9),
        ] {
            if let Some(found) = watch.look(&stats(percent, refused)) {
                told.push((percent, found.severity, found.is_rise));
            }
        }
        assert_eq!(
            told,
            [
                (60, Severity::Notice, true),
                (81, Severity::Warning, true),
                (99, Severity::Critical, true),
                (90, Severity::Notice, false),
                (77, Severity::Info, false),
                (57, Severity::Info, false),
                (95, Severity::Warning, true),
                (20, Severity::Info, false),
            ]
        );
        assert_eq!(watch.thresholds_bytes(&stats(0, 0)), [60 << 30, 80 << 30, 100 << 30]);
    }

    #[test]
    fn the_bin_is_needed_well_before_the_pool_is_full_but_not_for_what_comes_back_anyway() {
        let mut watch = SpaceWatch::new(SpacePercents::default());
        let needs = |stats: PoolStats, watch: &SpaceWatch| watch.needs_bin(&stats);
        assert!(!needs(stats(89, 0), &watch));
        assert!(needs(stats(90, 0), &watch));
        assert!(!needs(PoolStats { removing_bytes: 5 << 30, ..stats(94, 0) }, &watch));
        assert!(!needs(PoolStats { buffered_bytes: 20 << 30, ..stats(75, 0) }, &watch));
        assert!(needs(PoolStats { reserved_unmapped_bytes: 20 << 30, ..stats(75, 0) }, &watch));
        // Writes were refused: buffered data has no room.
        let full = PoolStats { buffered_bytes: 20 << 30, ..stats(80, 1) };
        assert!(watch.look(&full).is_some() && needs(full, &watch));
        assert!(!needs(PoolStats { removing_bytes: 5 << 30, ..full }, &watch));
    }

    /// A pool that is 70 % full and has another 40 % in its journal, most of it overwrites.
    #[test]
    fn a_restart_does_not_say_that_the_pool_is_full() {
        let mut watch = SpaceWatch::new(SpacePercents { notice: 75, warning: 90 });
        let replayed = PoolStats { buffered_bytes: 40 << 30, ..stats(70, 0) };
        assert!(watch.look(&replayed).is_some_and(|found| found.severity == Severity::Critical));
        let mut watch = SpaceWatch::new(SpacePercents { notice: 75, warning: 90 });
        watch.opened(&replayed);
        let told: Vec<_> = [40, 30, 45, 20, 3, 0]
            .iter()
            .filter_map(|buffered| watch.look(&PoolStats { buffered_bytes: buffered << 30, ..stats(70, 0) }))
            .collect();
        let said: Vec<_> = told.iter().map(|found| (found.severity, found.is_rise)).collect();
        // What hosts wrote after the opening counts.
        assert_eq!(said, [(Severity::Notice, true), (Severity::Info, false)]);
        // So does a write that is refused.
        watch.opened(&replayed);
        let refused = PoolStats { refused_writes: 1, ..replayed };
        assert!(watch.look(&refused).is_some_and(|found| found.severity == Severity::Critical));
    }

    #[test]
    fn what_is_kept_for_thick_volumes_counts_and_a_new_pool_object_counts_refusals_anew() {
        let mut watch = SpaceWatch::new(SpacePercents { notice: 50, warning: 90 });
        let kept = PoolStats { reserved_unmapped_bytes: 41 << 30, free_bytes: 49 << 30, ..stats(10, 7) };
        let found = watch.look(&kept).unwrap();
        assert_eq!((found.severity, watch.level()), (Severity::Critical, SpaceLevel::Full), "{}", found.text);
        let found = watch.look(&PoolStats { refused_writes: 0, ..kept }).unwrap();
        assert!(
            found.text.starts_with("space is available again") && found.text.contains("51 %"),
            "{}",
            found.text
        );
        assert_eq!(watch.level(), SpaceLevel::Notice);
    }
}
