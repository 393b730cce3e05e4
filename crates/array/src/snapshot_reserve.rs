//! The snapshot reserve: watches what snapshots hold, says when it is much, and does what the policy says when it is too much.
//!
//! What they hold is reckoned from below: the pool's host data less what is mapped in volumes and clones, which may share it.
//! So nothing is deleted or stopped for space that snapshots do not hold.

use crate::{
    Array, ArrayError,
    events::Told,
    record::{RESERVE_OBJECT, decode, encode},
    schedules::{Moment, moment_of},
};
use quoin_api::{self as api, ReservePolicy, Severity};
use quoin_pool::{Pool, PoolStats, Transaction};
use quoin_volume::{BlockDevice, OriginKind, Volume};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

const KEY: &str = "snapshots";
/// From this part of the limit on there is something to say.
const WARNING_PERCENT: u64 = 80;
/// Points below a threshold at which it counts as left.
const HYSTERESIS_PERCENT: u64 = 2;

/// The reserve as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReserveRecord {
    percent: Option<u8>,
    bytes: Option<u64>,
    policy: ReservePolicy,
}

/// How much of the reserve is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    Normal,
    Warning,
    Full,
}

/// The reserve, and the level it was at when it was looked at last.
#[derive(Default)]
pub(crate) struct ReserveWatch {
    record: Option<ReserveRecord>,
    level: Level,
    /// It was said that nothing can be deleted.
    stuck: bool,
}

pub(crate) fn read_reserve(pool: &Pool) -> Result<ReserveWatch, ArrayError> {
    let found = pool.list(RESERVE_OBJECT).into_iter().next();
    let record = found.map(|(key, value)| decode(&key, &value)).transpose()?;
    Ok(ReserveWatch { record, ..ReserveWatch::default() })
}

impl ReserveRecord {
    fn limit_bytes(&self, stats: &PoolStats) -> u64 {
        match (self.percent, self.bytes) {
            (Some(percent), _) => stats.usable_bytes / 100 * u64::from(percent),
            (None, bytes) => bytes.unwrap_or(0),
        }
    }
}

impl Level {
    /// The level after this one, with so much held of the limit.
    fn next(self, held_bytes: u64, limit_bytes: u64) -> Self {
        let used = u128::from(held_bytes) * 100 / u128::from(limit_bytes.max(1));
        let at = |level: Self, percent: u64| {
            let leave = if self >= level { HYSTERESIS_PERCENT } else { 0 };
            used >= u128::from(percent - leave)
        };
        if at(Self::Full, 100) {
            Self::Full
        } else if at(Self::Warning, WARNING_PERCENT) {
            Self::Warning
        } else {
            Self::Normal
        }
    }
}

fn is_snapshot(volume: &Volume) -> bool {
    volume.origin().is_some_and(|origin| origin.kind == OriginKind::Snapshot)
}

impl Array {
    /// The snapshot reserve.
    pub fn show_reserve(&self) -> Result<api::Reserve, ArrayError> {
        self.require_catalog()?;
        let pool = self.slot.get().ok();
        let stats = pool.as_ref().map(|pool| pool.stats());
        let record = self.reserve.lock().record.clone();
        let offline = self.volumes.list().into_iter().filter(|volume| volume.is_stopped());
        Ok(api::Reserve {
            percent: record.as_ref().and_then(|record| record.percent),
            limit_bytes: record.as_ref().zip(stats.as_ref()).map(|(record, stats)| record.limit_bytes(stats)),
            policy: record.map(|record| record.policy),
            held_bytes: pool.map(|pool| self.held_by_snapshots(&pool, |_| true)),
            offline_volumes: offline.map(|volume| volume.name()).collect(),
        })
    }

    /// Sets the snapshot reserve, or with `None` takes it away.
    pub async fn set_reserve(&self, request: Option<api::ReserveSet>) -> Result<api::Reserve, ArrayError> {
        let _turn = self.changes.lock().await;
        let pool = self.pool()?;
        let record = match request {
            None => None,
            Some(api::ReserveSet { percent, bytes, policy }) => {
                let fits = match (percent, bytes) {
                    (Some(percent), None) => (1..=100).contains(&percent),
                    (None, Some(bytes)) => bytes > 0,
                    _ => false,
                };
                if !fits {
                    return Err(ArrayError::Reserve);
                }
                Some(ReserveRecord { percent, bytes, policy })
            }
        };
        let (tx, told) = match &record {
            None => (Transaction::new().delete(RESERVE_OBJECT, KEY), "taken away".to_owned()),
            Some(record) => {
                let limit = record.limit_bytes(&pool.stats());
                let told = format!("set to {limit} bytes, {} beyond", record.policy);
                (Transaction::new().put(RESERVE_OBJECT, KEY, encode(record)), told)
            }
        };
        let before = self.reserve.lock().record.clone();
        let own = Told::new("snapshot reserve", told)
            .change(
                "percent",
                before.as_ref().and_then(|r| r.percent),
                record.as_ref().and_then(|r| r.percent),
            )
            .change("bytes", before.as_ref().and_then(|r| r.bytes), record.as_ref().and_then(|r| r.bytes))
            .change("policy", before.as_ref().map(|r| r.policy), record.as_ref().map(|r| r.policy));
        self.commit_told(tx, own).await?;
        *self.reserve.lock() = ReserveWatch { record, ..ReserveWatch::default() };
        self.look_at_reserve(&pool, &pool.stats());
        self.show_reserve()
    }

    /// Looks how much of the reserve is in use; says so, and stops volumes or lets them go on. True if something is to be
    /// deleted.
    pub(crate) fn look_at_reserve(&self, pool: &Pool, stats: &PoolStats) -> bool {
        let mut watch = self.reserve.lock();
        let Some(record) = watch.record.clone() else {
            drop(watch);
            self.stop_volumes(false);
            return false;
        };
        let (held, limit) = (self.held_by_snapshots(pool, |_| true), record.limit_bytes(stats));
        let before = watch.level;
        watch.level = before.next(held, limit);
        let level = watch.level;
        if level != Level::Full {
            watch.stuck = false;
        }
        drop(watch);
        let share = format!("snapshots hold {held} bytes of the {limit} bytes of the reserve");
        let told = match level {
            _ if level == before => None,
            Level::Full if record.policy == ReservePolicy::OfflineVolume => Some((
                Severity::Critical,
                format!(
                    "{share}: volumes that have snapshots refuse I/O until there is less; delete snapshots or raise \
                     the reserve"
                ),
            )),
            Level::Full => Some((Severity::Warning, format!("{share}: the oldest are deleted"))),
            Level::Warning if level > before => Some((Severity::Warning, share)),
            _ => Some((Severity::Info, format!("less again: {share}"))),
        };
        if let Some((severity, text)) = told {
            self.events.record(severity, "snapshot reserve", text);
        }
        self.stop_volumes(level == Level::Full && record.policy == ReservePolicy::OfflineVolume);
        level == Level::Full && record.policy == ReservePolicy::DeleteOldest
    }

    /// Makes volumes that have snapshots refuse I/O, or lets all go on.
    fn stop_volumes(&self, stop: bool) {
        let volumes = self.volumes.list();
        let origins =
            volumes.iter().filter(|volume| stop && is_snapshot(volume)).filter_map(|volume| volume.origin());
        let sources: Vec<_> = origins.map(|origin| origin.source).collect();
        volumes.iter().for_each(|volume| volume.set_stopped(sources.contains(&volume.id())));
    }

    /// Deletes the oldest snapshot, or set of snapshots, that may be deleted, once what was deleted before is given back.
    pub(crate) async fn recover_reserve(&self) {
        let _turn = self.changes.lock().await;
        let Ok(stats) = self.pool().map(|pool| pool.stats()) else { return };
        if stats.removing_bytes > 0 || stats.sifting_entries > 0 || stats.joining_layers > 0 {
            return;
        }
        let mut moments: BTreeMap<Moment, Vec<Arc<Volume>>> = BTreeMap::new();
        for volume in self.volumes.list().into_iter().filter(|volume| is_snapshot(volume)) {
            if let Some(moment) = moment_of(&volume) {
                moments.entry(moment).or_default().push(volume);
            }
        }
        let object = "snapshot reserve";
        for snapshots in moments.into_values() {
            if snapshots.iter().any(|volume| self.why_it_stays(volume).is_some()) {
                continue;
            }
            let names: Vec<_> = snapshots.iter().map(|volume| volume.name()).collect();
            let text =
                format!("snapshots held more than the reserve; deleted the oldest: {}", names.join(", "));
            match self.delete_all(&snapshots, (object.to_owned(), text)).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "a snapshot beyond the reserve was not deleted"),
            }
        }
        if !std::mem::replace(&mut self.reserve.lock().stuck, true) {
            let text = "snapshots hold too much, and all of them are immutable, mapped or exported: raise the reserve, \
                        or take snapshots away from hosts";
            self.events.record(Severity::Error, object, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_left_well_below_where_they_begin() {
        let mut level = Level::default();
        let mut seen = Vec::new();
        for held in [0, 79, 80, 79, 100, 99, 97, 78, 77, 101] {
            level = level.next(held, 100);
            seen.push(level);
        }
        use Level::{Full, Normal, Warning};
        assert_eq!(seen, [Normal, Normal, Warning, Warning, Full, Full, Warning, Warning, Normal, Full]);
        assert_eq!(Level::Normal.next(0, 0), Normal);
    }
}
