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
    pub(crate) fn next(self, held_bytes: u64, limit_bytes: u64) -> Self {
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
pub(crate) struct Watch {
    pub(crate) record: ReserveRecord,
    pub(crate) level: Level,
    pub(crate) held_bytes: u64,
    pub(crate) limit_bytes: u64,
    /// It was said that nothing can be deleted, and when.
    pub(crate) stuck: Option<Nanos>,
}

impl Watch {
    pub(crate) fn new(record: ReserveRecord) -> Self {
        Self { record, level: Level::Normal, held_bytes: 0, limit_bytes: 0, stuck: None }
    }

    pub(crate) fn is_full_by(&self, policy: ReservePolicy) -> bool {
        self.level == Level::Full && self.record.policy == policy
    }
}

/// All reserves, and the volumes that they keep offline.
#[derive(Default)]
pub(crate) struct Reserves {
    pub(crate) watches: BTreeMap<Scope, Watch>,
    pub(crate) offline: BTreeMap<VolumeId, Scope>,
    /// The last volume or group whose reserve was looked at.
    last: Option<Scope>,
}

impl Reserves {
    /// Those to be looked at now: the pool's, and some of the others in turn.
    pub(crate) fn turn(&mut self) -> Vec<Scope> {
        let own: Vec<_> = self.watches.keys().copied().filter(|scope| *scope != Scope::Pool).collect();
        let after = self.last.map_or(0, |last| own.partition_point(|scope| *scope <= last));
        let some: Vec<_> = own[after..].iter().chain(&own[..after]).copied().take(LOOKED_AT_ONCE).collect();
        self.last = some.last().copied();
        let pool = self.watches.contains_key(&Scope::Pool).then_some(Scope::Pool);
        pool.into_iter().chain(some).collect()
    }
}

pub(crate) fn read_reserves(pool: &Pool) -> Result<Reserves, ArrayError> {
    let mut reserves = Reserves::default();
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

    #[test]
    fn keys_lead_back_to_volumes_and_groups() {
        for scope in [Scope::Volume(VolumeId(7)), Scope::Group(Uuid::from_u128(9))] {
            let (kind, key) = scope.place();
            assert_eq!((kind, Scope::of_key(&key)), (OWN_RESERVE_OBJECT, Some(scope)));
        }
        assert_eq!([POOL_KEY, "volume/x", "host/7"].map(Scope::of_key), [None; 3]);
    }

    #[test]
    fn many_are_looked_at_in_turn() {
        let record = ReserveRecord { percent: None, bytes: Some(1), policy: ReservePolicy::DeleteOldest };
        let mut reserves = Reserves::default();
        reserves.watches.insert(Scope::Pool, Watch::new(record.clone()));
        for id in 0..25 {
            reserves.watches.insert(Scope::Volume(VolumeId(id)), Watch::new(record.clone()));
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
