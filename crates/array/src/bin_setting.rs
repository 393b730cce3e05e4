//! How long deleted volumes are kept, as the catalog has it.

use crate::{
    ArrayError, current_actor,
    record::{RECYCLE_BIN_OBJECT, decode},
};
use quoin_pool::Pool;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long deleted volumes are kept by default.
const KEEP_DEFAULT: Duration = Duration::from_secs(86_400);

/// The setting as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BinRecord {
    /// 0: nothing is kept.
    pub(crate) keep_s: u64,
}

/// How long deleted volumes are kept.
pub(crate) struct BinSetting(pub(crate) Duration);

impl Default for BinSetting {
    fn default() -> Self {
        Self(KEEP_DEFAULT)
    }
}

pub(crate) fn read_bin_setting(pool: &Pool) -> Result<BinSetting, ArrayError> {
    let Some((key, value)) = pool.list(RECYCLE_BIN_OBJECT).into_iter().next() else {
        return Ok(BinSetting::default());
    };
    let BinRecord { keep_s } = decode(&key, &value)?;
    Ok(BinSetting(Duration::from_secs(keep_s)))
}

/// Who deletes, for the record of the volume.
pub(crate) fn deleted_by() -> Option<String> {
    current_actor().map(|actor| actor.to_string())
}
