//! Snapshot reserves as the catalog keeps them, and how much of each was in use when it was looked at last.

use crate::{
    ArrayError, ReserveError,
    record::{OWN_RESERVE_OBJECT, RESERVE_OBJECT, decode},
};
use quoin_api::{self as api, ReservePolicy};
use quoin_base::VolumeId;
use quoin_pool::{ObjectKind, Pool};
use quoin_world::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The key of the pool's reserve.
const POOL_KEY: &str = "snapshots";
/// From this part of the limit on there is something to say.
const WARNING_PERCENT: u64 = 80;
/// Points below a threshold at which it counts as left.
const HYSTERESIS_PERCENT: u64 = 2;
/// The most volumes and groups that have a reserve.
pub(crate) const OWN_RESERVES_MAX: usize = 100;
/// The number of reserves of volumes and groups that are checked each second.
const LOOKED_AT_ONCE: usize = 10;

/// Whose reserve it is, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveOf {
    /// The pool's.
    Pool,
    /// A volume's.
    Volume(String),
    /// A consistency group's.
    Group(String),
}

/// Whose snapshots a reserve limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Pool,
    Volume(VolumeId),
    Group(Uuid),
}

impl Scope {
    /// Where the catalog keeps its reserve.
    pub(crate) fn place(self) -> (ObjectKind, String) {
        match self {
            Self::Pool => (RESERVE_OBJECT, POOL_KEY.to_owned()),
            Self::Volume(id) => (OWN_RESERVE_OBJECT, format!("volume/{}", id.0)),
            Self::Group(id) => (OWN_RESERVE_OBJECT, format!("group/{id}")),
        }
    }

    /// The volume or group of a reserve that the catalog keeps under this key.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        match key.split_once('/')? {
            ("volume", id) => Some(Self::Volume(VolumeId(id.parse().ok()?))),
            ("group", id) => Some(Self::Group(id.parse().ok()?)),
            _ => None,
        }
    }
}

/// A reserve as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReserveRecord {
    pub(crate) percent: Option<u8>,
    pub(crate) bytes: Option<u64>,
    pub(crate) policy: ReservePolicy,
}

impl ReserveRecord {
    pub(crate) fn of(request: &api::ReserveSet) -> Result<Self, ReserveError> {
        let api::ReserveSet { percent, bytes, policy, .. } = *request;
        let fits = match (percent, bytes) {
            (Some(percent), None) => (1..=100).contains(&percent),
            (None, Some(bytes)) => bytes > 0,
            _ => false,
        };
        if fits { Ok(Self { percent, bytes, policy }) } else { Err(ReserveError::Invalid) }
    }
}

/// How much of a reserve snapshots hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) held_bytes: u64,
    /// How much they may hold.
    pub(crate) limit_bytes: u64,
}

/// How much of a reserve is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    Normal,
    Warning,
    Full,
}

impl Level {
    /// The level after this one, with so much held of the limit.
    pub(crate) fn next(self, holding: Holding) -> Self {
        let Holding { held_bytes, limit_bytes } = holding;
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

/// A reserve, and how it was when it was looked at last.
struct Watch {
    record: ReserveRecord,
    level: Level,
    holding: Holding,
    /// It was said that nothing can be deleted, and when.
    stuck: Option<Nanos>,
}

impl Watch {
    fn new(record: ReserveRecord) -> Self {
        Self { record, level: Level::Normal, holding: Holding::default(), stuck: None }
    }

    fn is_full_by(&self, policy: ReservePolicy) -> bool {
        self.level == Level::Full && self.record.policy == policy
    }
}

/// All reserves, and the volumes that they keep offline.
#[derive(Default)]
pub(crate) struct Reserves {
    watches: BTreeMap<Scope, Watch>,
    offline: BTreeMap<VolumeId, Scope>,
    /// The last volume or group whose reserve was looked at.
    last: Option<Scope>,
}

/// A reserve beyond which snapshots are to be deleted.
pub(crate) struct Overfull {
    pub(crate) record: ReserveRecord,
    pub(crate) level: Level,
    /// It was said that nothing can be deleted, and when.
    pub(crate) stuck: Option<Nanos>,
}

/// A volume that a reserve takes offline, or lets be online again.
pub(crate) struct Change {
    pub(crate) is_taken_offline: bool,
    pub(crate) volume: VolumeId,
    pub(crate) scope: Scope,
}

impl Reserves {
    /// Reads the reserves in the catalog of a pool.
    pub(crate) fn read(pool: &Pool) -> Result<Self, ArrayError> {
        let mut reserves = Self::default();
        for (key, value) in pool.list(RESERVE_OBJECT) {
            reserves.watches.insert(Scope::Pool, Watch::new(decode(&key, &value)?));
        }
        for (key, value) in pool.list(OWN_RESERVE_OBJECT) {
            let record = decode(&key, &value)?;
            let bad = || ArrayError::Record {
                key: key.clone(),
                why: "it is of neither a volume nor a group".to_owned(),
            };
            reserves.watches.insert(Scope::of_key(&key).ok_or_else(bad)?, Watch::new(record));
        }
        Ok(reserves)
    }

    /// Takes over the reserves of a pool that was opened. What was reported of those that are as before counts as
    /// reported, and so do volumes that are offline.
    pub(crate) fn restore(&mut self, kept: Self) {
        let Self { mut watches, offline, last } = std::mem::replace(self, kept);
        (self.offline, self.last) = (offline, last);
        for (scope, watch) in &mut self.watches {
            if let Some(before) = watches.remove(scope).filter(|before| before.record == watch.record) {
                *watch = before;
            }
        }
    }

    /// All there are.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        self.watches.keys().copied().collect()
    }

    /// Those of volumes and groups.
    pub(crate) fn own_scopes(&self) -> Vec<Scope> {
        self.watches.keys().copied().filter(|scope| *scope != Scope::Pool).collect()
    }

    /// Whether there is one.
    pub(crate) fn is_set(&self, scope: Scope) -> bool {
        self.watches.contains_key(&scope)
    }

    /// How one is set.
    pub(crate) fn record(&self, scope: Scope) -> Option<ReserveRecord> {
        self.watches.get(&scope).map(|watch| watch.record.clone())
    }

    /// Whether it may be set: volumes and groups have no more than [`OWN_RESERVES_MAX`].
    pub(crate) fn has_room_for(&self, scope: Scope) -> bool {
        scope == Scope::Pool || self.is_set(scope) || self.own_scopes().len() < OWN_RESERVES_MAX
    }

    /// Takes over how one is set; it is looked at anew.
    pub(crate) fn set(&mut self, scope: Scope, record: ReserveRecord) {
        self.watches.insert(scope, Watch::new(record));
    }

    /// Takes over that there is none.
    pub(crate) fn remove(&mut self, scope: Scope) {
        self.watches.remove(&scope);
    }

    /// How much snapshots held of each reserve of a volume or group when it was looked at last.
    pub(crate) fn own_figures(&self) -> Vec<(Scope, Holding)> {
        let own = self.watches.iter().filter(|(scope, _)| **scope != Scope::Pool);
        own.map(|(scope, watch)| (*scope, watch.holding)).collect()
    }

    /// Notes how much snapshots hold of the limit. Returns the level before and the level that it has now.
    pub(crate) fn note(&mut self, scope: Scope, holding: Holding) -> Option<(Level, Level)> {
        let watch = self.watches.get_mut(&scope)?;
        let before = watch.level;
        watch.level = before.next(holding);
        watch.holding = holding;
        if watch.level != Level::Full {
            watch.stuck = None;
        }
        Some((before, watch.level))
    }

    /// The reserve, if it is full and snapshots are to be deleted then.
    pub(crate) fn overfull(&self, scope: Scope) -> Option<Overfull> {
        let watch = self.watches.get(&scope).filter(|watch| watch.is_full_by(ReservePolicy::DeleteOldest))?;
        Some(Overfull { record: watch.record.clone(), level: watch.level, stuck: watch.stuck })
    }

    /// Notes that nothing could be deleted.
    pub(crate) fn note_stuck(&mut self, scope: Scope, now: Nanos) {
        if let Some(watch) = self.watches.get_mut(&scope) {
            watch.stuck = Some(now);
        }
    }

    /// The reserves that are full and take volumes offline then.
    pub(crate) fn stopping(&self) -> Vec<Scope> {
        let full = self.watches.iter().filter(|(_, watch)| watch.is_full_by(ReservePolicy::OfflineVolume));
        full.map(|(scope, _)| *scope).collect()
    }

    /// Takes over which volumes are offline, and by which reserve. Returns what changes by it.
    pub(crate) fn take_offline(&mut self, offline: BTreeMap<VolumeId, Scope>) -> Vec<Change> {
        let before = std::mem::replace(&mut self.offline, offline);
        let change = |is_taken_offline| {
            move |(id, scope): (&VolumeId, &Scope)| Change { is_taken_offline, volume: *id, scope: *scope }
        };
        let added = self.offline.iter().filter(|(id, _)| !before.contains_key(id)).map(change(true));
        let back = before.iter().filter(|(id, _)| !self.offline.contains_key(id)).map(change(false));
        added.chain(back).collect()
    }

    /// The reserve that keeps a volume offline.
    pub(crate) fn keeps_offline(&self, volume: VolumeId) -> Option<Scope> {
        self.offline.get(&volume).copied()
    }

    /// The volumes that such reserves keep offline.
    pub(crate) fn offline_by(&self, by: impl Fn(Scope) -> bool) -> Vec<VolumeId> {
        self.offline.iter().filter(|(_, scope)| by(**scope)).map(|(id, _)| *id).collect()
    }

    /// Those to be looked at now: the pool's, and some of the others in turn.
    pub(crate) fn turn(&mut self) -> Vec<Scope> {
        let own = self.own_scopes();
        let after = self.last.map_or(0, |last| own.partition_point(|scope| *scope <= last));
        let some: Vec<_> = own[after..].iter().chain(&own[..after]).copied().take(LOOKED_AT_ONCE).collect();
        self.last = some.last().copied();
        let pool = self.watches.contains_key(&Scope::Pool).then_some(Scope::Pool);
        pool.into_iter().chain(some).collect()
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
            level = level.next(Holding { held_bytes: held, limit_bytes: 100 });
            seen.push(level);
        }
        use Level::{Full, Normal, Warning};
        assert_eq!(seen, [Normal, Normal, Warning, Warning, Full, Full, Warning, Warning, Normal, Full]);
        assert_eq!(Level::Normal.next(Holding::default()), Normal);
    }

    #[test]
    fn keys_lead_back_to_volumes_and_groups() {
        for scope in [Scope::Volume(VolumeId(7)), Scope::Group(Uuid::from_u128(9))] {
            let (kind, key) = scope.place();
            assert_eq!((kind, Scope::of_key(&key)), (OWN_RESERVE_OBJECT, Some(scope)));
        }
        assert_eq!([POOL_KEY, "volume/x", "host/7"].map(Scope::of_key), [None; 3]);
    }

    #[test]
    fn what_was_reported_counts_as_reported_after_the_pool_was_reopened_unless_the_reserve_is_another() {
        let record = ReserveRecord { percent: None, bytes: Some(1), policy: ReservePolicy::OfflineVolume };
        let kept = |bytes| {
            let mut kept = Reserves::default();
            kept.set(Scope::Pool, ReserveRecord { bytes: Some(bytes), ..record.clone() });
            kept
        };
        let offline = BTreeMap::from([(VolumeId(3), Scope::Pool)]);
        let mut reserves = kept(1);
        assert_eq!(
            reserves.note(Scope::Pool, Holding { held_bytes: 10, limit_bytes: 10 }),
            Some((Level::Normal, Level::Full))
        );
        assert_eq!(reserves.take_offline(offline.clone()).len(), 1);
        reserves.restore(kept(1));
        assert_eq!(
            reserves.note(Scope::Pool, Holding { held_bytes: 10, limit_bytes: 10 }),
            Some((Level::Full, Level::Full))
        );
        assert_eq!(reserves.take_offline(offline).len(), 0);
        reserves.restore(kept(2));
        assert_eq!(
            reserves.note(Scope::Pool, Holding { held_bytes: 0, limit_bytes: 10 }),
            Some((Level::Normal, Level::Normal))
        );
        assert!(!reserves.take_offline(BTreeMap::new())[0].is_taken_offline, "it is back online");
    }

    #[test]
    fn many_are_looked_at_in_turn() {
        let record = ReserveRecord { percent: None, bytes: Some(1), policy: ReservePolicy::DeleteOldest };
        let mut reserves = Reserves::default();
        reserves.set(Scope::Pool, record.clone());
        for id in 0..25 {
            reserves.set(Scope::Volume(VolumeId(id)), record.clone());
        }
        let mut seen = BTreeMap::new();
        for _ in 0..5 {
            let turn = reserves.turn();
            assert_eq!((turn[0], turn.len()), (Scope::Pool, 1 + LOOKED_AT_ONCE));
            turn.into_iter().for_each(|scope| *seen.entry(scope).or_insert(0) += 1);
        }
        assert_eq!(seen.remove(&Scope::Pool), Some(5));
        assert!(seen.len() == 25 && seen.values().all(|times| *times == 2), "{seen:?}");
    }
}
