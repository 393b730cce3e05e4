//! Watches how full the pool is: says when a threshold is reached, and when there is space again.
//!
//! A level is left only when use has fallen well below its threshold, so that use that oscillates around a threshold
//! does not cause an event each time. Data that the last process left in the journal is charged as new data until it is
//! destaged. It is not counted here until then, so that a well filled pool is not reported as full after a restart.

use crate::spare_watch::SpareWatch;
use quoin_api::{Severity, SpaceLevel};
use quoin_base::GIB;
use quoin_pool::{Pool, PoolStats};
use quoin_volume::Volume;
use std::{collections::BTreeSet, sync::Arc};

/// Points below its threshold at which a level is left.
const HYSTERESIS_PERCENT: f64 = 2.0;
/// The most space that must be free again before a full pool no longer counts as full.
const ROOM_AGAIN_MAX_BYTES: u64 = GIB;

/// Where the recycle bin is needed is reckoned from here if there is no warning threshold.
const WARNING_PERCENT: u8 = 80;

/// How much of the space for host data may be used before there is something to say; `None`: nothing is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpacePercents {
    /// From here on a notice is in order.
    pub notice: Option<u8>,
    /// From here on a warning is in order.
    pub warning: Option<u8>,
    /// From here on it is critical.
    pub critical: Option<u8>,
}

impl From<[u8; 3]> for SpacePercents {
    /// From percents, 0 for off.
    fn from(percents: [u8; 3]) -> Self {
        let [notice, warning, critical] = percents.map(|percent| (percent > 0).then_some(percent));
        Self { notice, warning, critical }
    }
}

impl From<SpacePercents> for [u8; 3] {
    fn from(percents: SpacePercents) -> Self {
        let SpacePercents { notice, warning, critical } = percents;
        [notice, warning, critical].map(Option::unwrap_or_default)
    }
}

impl Default for SpacePercents {
    fn default() -> Self {
        [60, 80, 100].into()
    }
}

impl SpacePercents {
    /// Those that are on, from 0 to 1, with their names.
    pub(crate) fn ratios(&self) -> Vec<(&'static str, f64)> {
        let named = [("notice", self.notice), ("warning", self.warning), ("critical", self.critical)];
        named.into_iter().filter_map(|(name, percent)| Some((name, f64::from(percent?) / 100.0))).collect()
    }

    /// The percent of a level; `None` if its threshold is off.
    fn of(&self, level: SpaceLevel) -> Option<u8> {
        match level {
            SpaceLevel::Normal => None,
            SpaceLevel::Notice => self.notice,
            SpaceLevel::Warning => self.warning,
            SpaceLevel::Critical => self.critical.filter(|percent| *percent < 100),
            SpaceLevel::Full => self.critical.filter(|percent| *percent == 100),
        }
    }

    /// The lowest threshold above a level.
    fn above(&self, level: SpaceLevel) -> u8 {
        let levels = [SpaceLevel::Notice, SpaceLevel::Warning, SpaceLevel::Critical];
        levels.into_iter().filter(|other| *other > level).find_map(|other| self.of(other)).unwrap_or(100)
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
    spare: SpareWatch,
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
        Self {
            percents,
            spare: SpareWatch::default(),
            level: SpaceLevel::Normal,
            refused_writes: 0,
            replayed_bytes: 0,
        }
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
        let percent = u64::midpoint(self.percents.warning.unwrap_or(WARNING_PERCENT).into(), 100);
        let taken = (stats.live_bytes + stats.reserved_unmapped_bytes).saturating_sub(stats.removing_bytes);
        let buffered = stats.buffered_bytes.saturating_sub(self.replayed_bytes);
        let room = (stats.free_bytes + stats.removing_bytes).saturating_sub(buffered);
        taken >= stats.usable_bytes / 100 * percent
            || self.level == SpaceLevel::Full && room < room_again_bytes(stats)
    }

    /// The thresholds that are on, in bytes, ascending.
    pub(crate) fn thresholds_bytes(&self, stats: &PoolStats) -> Vec<u64> {
        let part = |percent: u8| match percent {
            100 => stats.usable_bytes,
            percent => stats.usable_bytes / 100 * u64::from(percent),
        };
        let SpacePercents { notice, warning, critical } = self.percents;
        // A full pool is told of in any case but one: all of it may be used, and nobody wants to know.
        let full = critical.filter(|percent| *percent < 100).map(|_| 100);
        [notice, warning, critical, full].into_iter().flatten().map(part).collect()
    }

    pub(crate) fn spare(&self) -> &SpareWatch {
        &self.spare
    }

    pub(crate) fn spare_mut(&mut self) -> &mut SpareWatch {
        &mut self.spare
    }

    pub(crate) fn percents(&self) -> SpacePercents {
        self.percents
    }

    /// Other thresholds hold from now on. What is above none of them any more is so silently: nothing was freed.
    pub(crate) fn set(&mut self, percents: SpacePercents, stats: &PoolStats) {
        self.percents = percents;
        let before = std::mem::replace(&mut self.level, SpaceLevel::Normal);
        self.level = before.min(self.level_of(&self.without_replayed(stats)));
    }

    fn without_replayed(&self, stats: &PoolStats) -> PoolStats {
        // Replayed data cannot be more than all buffered data.
        PoolStats { buffered_bytes: stats.buffered_bytes.saturating_sub(self.replayed_bytes), ..*stats }
    }

    /// Looks at the pool; what changed since it was looked at before.
    pub(crate) fn look(&mut self, stats: &PoolStats) -> Option<Found> {
        let before = self.level;
        self.replayed_bytes = self.replayed_bytes.min(stats.buffered_bytes);
        let stats = &self.without_replayed(stats);
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
            _ if level > before => {
                let severity = match level {
                    SpaceLevel::Critical => Severity::Critical,
                    SpaceLevel::Warning => Severity::Warning,
                    _ => Severity::Notice,
                };
                let percent = self.percents.of(level).unwrap_or(100);
                (severity, format!("threshold of {percent} % reached: {share}"))
            }
            _ => {
                let percent = self.percents.above(level);
                (Severity::Info, format!("below the threshold of {percent} % again: {share}"))
            }
        };
        Some(Found { severity, text, is_rise: level > before })
    }

    fn level_of(&self, stats: &PoolStats) -> SpaceLevel {
        let room = stats.free_bytes.saturating_sub(stats.buffered_bytes);
        let refused = stats.refused_writes > self.refused_writes;
        // Without the last threshold, nothing is said of a full pool before it refuses a write.
        let no_room = room == 0 && self.percents.critical.is_some();
        if no_room || refused || (self.level == SpaceLevel::Full && room < room_again_bytes(stats)) {
            return SpaceLevel::Full;
        }
        let used = used_percent(stats);
        let is_at = |level: &SpaceLevel| {
            let leave = if self.level >= *level { HYSTERESIS_PERCENT } else { 0.0 };
            self.percents.of(*level).is_some_and(|percent| used >= f64::from(percent) - leave)
        };
        let levels = [SpaceLevel::Critical, SpaceLevel::Warning, SpaceLevel::Notice];
        levels.into_iter().find(is_at).unwrap_or(SpaceLevel::Normal)
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
    fn thresholds_are_set_and_turned_off_while_the_pool_fills() {
        let mut watch = SpaceWatch::new(SpacePercents::default());
        let look = |watch: &mut SpaceWatch, percent: u64, refused: u64| {
            watch.look(&stats(percent, refused)).map(|found| (found.severity, found.text))
        };
        assert!(look(&mut watch, 85, 0).is_some_and(|(severity, _)| severity == Severity::Warning));
        // Nothing was freed, so nothing is told.
        watch.set([60, 0, 100].into(), &stats(85, 0));
        assert_eq!((watch.level(), look(&mut watch, 85, 0)), (SpaceLevel::Notice, None));
        // A lower threshold is reached at once.
        watch.set([60, 0, 84].into(), &stats(85, 0));
        let (severity, text) = look(&mut watch, 85, 0).unwrap();
        assert_eq!((severity, watch.level()), (Severity::Critical, SpaceLevel::Critical));
        assert!(text.starts_with("threshold of 84 % reached: 85 %"), "{text}");
        assert_eq!(watch.thresholds_bytes(&stats(0, 0)), [60 << 30, 84 << 30, 100 << 30]);
        let (severity, text) = look(&mut watch, 81, 0).unwrap();
        assert_eq!((severity, watch.level()), (Severity::Info, SpaceLevel::Notice));
        assert!(text.starts_with("below the threshold of 84 % again"), "{text}");
        // All off: only a refused write is told of.
        watch.set([0, 0, 0].into(), &stats(81, 0));
        assert_eq!((look(&mut watch, 100, 0), watch.thresholds_bytes(&stats(0, 0))), (None, Vec::new()));
        assert!(look(&mut watch, 100, 1).is_some_and(|(severity, _)| severity == Severity::Critical));
        assert!(look(&mut watch, 70, 1).is_some_and(|(severity, _)| severity == Severity::Notice));
        assert_eq!(watch.level(), SpaceLevel::Normal);
        assert!(watch.needs_bin(&stats(90, 1)) && !watch.needs_bin(&stats(89, 1)));
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
        let mut watch = SpaceWatch::new(SpacePercents::from([75, 90, 100]));
        let replayed = PoolStats { buffered_bytes: 40 << 30, ..stats(70, 0) };
        assert!(watch.look(&replayed).is_some_and(|found| found.severity == Severity::Critical));
        let mut watch = SpaceWatch::new(SpacePercents::from([75, 90, 100]));
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
        let mut watch = SpaceWatch::new(SpacePercents::from([50, 90, 100]));
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
