//! Space that comes back after deletions.

use crate::{array::Array, process::wait_until};
use anyhow::{Context, Result};
use std::{
    fmt,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(120);

/// What was waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Back {
    pub(crate) used_bytes: u64,
    took: Duration,
}

impl fmt::Display for Back {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.used_bytes as f64 / f64::from(1 << 20);
        write!(f, "{mib:.1} MiB are used after {:.1} s", self.took.as_secs_f64())
    }
}

/// Waits until what was deleted has been given back: until no more is used than volumes map.
pub(crate) fn back(array: &Array) -> Result<Back> {
    let began = Instant::now();
    let capacity = |name: &str| -> Result<u64> {
        let status = array.status()?;
        status["capacity"][name].as_u64().with_context(|| format!("the status has no capacity.{name}"))
    };
    wait_until("the space of what was deleted to come back", LIMIT, || {
        Ok(capacity("used_bytes")? <= capacity("mapped_bytes")?)
    })
    .with_context(|| {
        format!("{:?} bytes used, {:?} mapped", capacity("used_bytes"), capacity("mapped_bytes"))
    })?;
    Ok(Back { used_bytes: capacity("used_bytes")?, took: began.elapsed() })
}
