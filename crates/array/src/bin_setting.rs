//! How long deleted volumes are kept, as the catalog has it.

use crate::{
    ArrayError, BinError, current_actor,
    record::{RECYCLE_BIN_OBJECT, decode, encode},
};
use quoin_pool::{Pool, Transaction};
use quoin_volume::RETAIN_MAX;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const KEY: &str = "recycle-bin";
/// How long deleted volumes are kept by default.
const KEEP_DEFAULT: Duration = Duration::from_secs(86_400);

/// The setting as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BinRecord {
    /// 0: nothing is kept.
    keep_s: u64,
}

/// How long deleted volumes are kept; zero: not at all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BinSetting(Duration);

impl Default for BinSetting {
    fn default() -> Self {
        Self(KEEP_DEFAULT)
    }
}

impl BinSetting {
    /// The setting that keeps volumes for so long, which is at most [`RETAIN_MAX`].
    pub(crate) fn of_seconds(keep_s: u64) -> Result<Self, BinError> {
        let keep = Duration::from_secs(keep_s);
        if keep > RETAIN_MAX { Err(BinError::Keep { keep_s }) } else { Ok(Self(keep)) }
    }

    /// Reads the setting in the catalog of a pool.
    pub(crate) fn read(pool: &Pool) -> Result<Self, ArrayError> {
        let Some((key, value)) = pool.list(RECYCLE_BIN_OBJECT).into_iter().next() else {
            return Ok(Self::default());
        };
        let BinRecord { keep_s } = decode(&key, &value)?;
        Ok(Self(Duration::from_secs(keep_s)))
    }

    /// The transaction that makes this the setting in the catalog.
    pub(crate) fn put(self) -> Transaction {
        Transaction::new().put(RECYCLE_BIN_OBJECT, KEY, encode(&BinRecord { keep_s: self.seconds() }))
    }

    /// How long volumes are kept; `None`: not at all.
    pub(crate) fn keep(self) -> Option<Duration> {
        Some(self.0).filter(|keep| !keep.is_zero())
    }

    /// The same in seconds.
    pub(crate) fn seconds(self) -> u64 {
        self.0.as_secs()
    }
}

/// Who deletes, for the record of the volume.
pub(crate) fn deleted_by() -> Option<String> {
    current_actor().map(|actor| actor.to_string())
}
