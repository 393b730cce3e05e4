//! Limits of IOPS and bandwidth as the catalog keeps them, and what they are for.

use crate::{
    ArrayError, QosError,
    record::{QOS_OBJECT, decode},
};
use quoin_api as api;
use quoin_base::VolumeId;
use quoin_pool::Pool;
use quoin_qos::{Limits, Rate, Share};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, num::NonZeroU64, ops::RangeInclusive, sync::Arc, time::Duration};
use uuid::Uuid;

/// IOPS that may be a limit. With fewer, a host's queue would take longer than the host waits.
const IOPS: RangeInclusive<u64> = 10..=100_000_000;
/// Bytes a second that may be a limit: the largest command passes in 8 seconds.
const BANDWIDTH: RangeInclusive<u64> = 4 << 20..=1 << 40;
const MOST_BURST: Duration = Duration::from_secs(3600);
/// What limits are asked about, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QosOf {
    /// A volume.
    Volume(String),
    /// A consistency group.
    Group(String),
    /// A policy.
    Policy(String),
}

/// What limits apply to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limited {
    Volume(VolumeId),
    Group(Uuid),
    Policy(String),
}

impl Limited {
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Volume(id) => format!("volume/{}", id.0),
            Self::Group(id) => format!("group/{id}"),
            Self::Policy(name) => format!("policy/{name}"),
        }
    }

    pub(crate) fn of_key(key: &str) -> Option<Self> {
        match key.split_once('/')? {
            ("volume", id) => Some(Self::Volume(VolumeId(id.parse().ok()?))),
            ("group", id) => Some(Self::Group(id.parse().ok()?)),
            ("policy", name) => Some(Self::Policy(name.to_owned())),
            _ => None,
        }
    }
}

/// Limits as the catalog keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QosRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_s: Option<u64>,
    pub(crate) burst_ms: u64,
}

impl QosRecord {
    pub(crate) fn of(request: &api::QosSet) -> Result<Self, QosError> {
        let api::QosSet { iops, bytes_per_s, burst_ms } = *request;
        if iops.is_none() && bytes_per_s.is_none() {
            return Err(QosError::Nothing);
        }
        if iops.is_some_and(|iops| !IOPS.contains(&iops)) {
            return Err(QosError::Iops { least: *IOPS.start(), most: *IOPS.end() });
        }
        if bytes_per_s.is_some_and(|bytes| !BANDWIDTH.contains(&bytes)) {
            return Err(QosError::Bandwidth { least: *BANDWIDTH.start(), most: *BANDWIDTH.end() });
        }
        if Duration::from_millis(burst_ms) > MOST_BURST {
            return Err(QosError::Burst { most_s: MOST_BURST.as_secs() });
        }
        Ok(Self { iops, bytes_per_s, burst_ms })
    }

    pub(crate) fn limits(&self) -> Limits {
        let burst = Duration::from_millis(self.burst_ms);
        let rate = |per_s: Option<u64>| Some(Rate { per_s: NonZeroU64::new(per_s?)?, burst });
        Limits { ios: rate(self.iops), bytes: rate(self.bytes_per_s) }
    }

    /// `5000 IOPS, 1048576 bytes/s`, for events.
    pub(crate) fn told(&self) -> String {
        let iops = self.iops.map(|iops| format!("{iops} IOPS"));
        let bytes = self.bytes_per_s.map(|bytes| format!("{bytes} bytes/s"));
        let parts: Vec<_> = [iops, bytes].into_iter().flatten().collect();
        format!("limited to {}, bursts of {} ms", parts.join(" and "), self.burst_ms)
    }
}

/// The limits there are, and what volumes of a group share.
#[derive(Default)]
pub(crate) struct Qos {
    pub(crate) records: BTreeMap<Limited, QosRecord>,
    pub(crate) shares: BTreeMap<Uuid, Arc<Share>>,
    /// Some volume may have limits.
    pub(crate) any: bool,
}

impl Qos {
    pub(crate) fn read(pool: &Pool) -> Result<Self, ArrayError> {
        let mut qos = Self::default();
        for (key, value) in pool.list(QOS_OBJECT) {
            let unknown = || ArrayError::Record { key: key.clone(), why: "limits nothing known".to_owned() };
            qos.records.insert(Limited::of_key(&key).ok_or_else(unknown)?, decode(&key, &value)?);
        }
        Ok(qos)
    }

    pub(crate) fn limits(&self, of: &Limited) -> Limits {
        self.records.get(of).map(QosRecord::limits).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kept_under_the_name_of_what_they_limit() {
        let all = [
            Limited::Volume(VolumeId(7)),
            Limited::Group(Uuid::from_u128(9)),
            Limited::Policy("gold".to_owned()),
        ];
        for limited in all {
            assert_eq!(Limited::of_key(&limited.key()), Some(limited));
        }
        assert_eq!(["volume/x", "host/7", "pool"].map(Limited::of_key), [None, None, None]);
    }

    #[test]
    fn limits_that_cannot_be_are_refused() {
        let set = |iops, bytes_per_s, burst_ms| QosRecord::of(&api::QosSet { iops, bytes_per_s, burst_ms });
        assert_eq!(set(None, None, 0), Err(QosError::Nothing));
        assert!(matches!(set(Some(9), None, 0), Err(QosError::Iops { least: 10, .. })));
        assert!(matches!(set(None, Some(1000), 0), Err(QosError::Bandwidth { .. })));
        assert!(matches!(set(Some(10), None, 3_600_001), Err(QosError::Burst { .. })));
        let record = set(Some(10), Some(4 << 20), 3_600_000).unwrap();
        assert_eq!(record.told(), "limited to 10 IOPS and 4194304 bytes/s, bursts of 3600000 ms");
    }
}
