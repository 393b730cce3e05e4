//! The drives of one pool, opened together.

use crate::{Drive, DriveError};
use quoin_base::Epoch;
use quoin_world::Disk;
use std::sync::Arc;

/// Opens all drives of one pool; the result is in the order of their indices.
///
/// Every index must be there once. A drive more than one epoch behind the newest was away while the pool
/// went on and is refused; one epoch behind is what [`raise_set`] leaves when it is interrupted.
pub async fn open_set(disks: Vec<Arc<dyn Disk>>) -> Result<Vec<Arc<Drive>>, DriveError> {
    let mut drives = Vec::with_capacity(disks.len());
    for disk in disks {
        drives.push(Drive::open(disk).await?);
    }
    fitting(drives)
}

/// The same with [`Drive::inspect`]: changes nothing on any drive.
pub async fn inspect_set(disks: Vec<Arc<dyn Disk>>) -> Result<Vec<Arc<Drive>>, DriveError> {
    let mut drives = Vec::with_capacity(disks.len());
    for disk in disks {
        drives.push(Drive::inspect(disk).await?);
    }
    fitting(drives)
}

/// The drives in the order of their indices, if they make up a pool.
fn fitting(mut drives: Vec<Arc<Drive>>) -> Result<Vec<Arc<Drive>>, DriveError> {
    let Some(first) = drives.first() else { return Err(DriveError::NoDrives) };
    let (pool, total) = (first.label().pool, first.label().drives);
    for drive in &drives {
        let found = drive.label().pool;
        if found != pool {
            return Err(DriveError::OtherPool { drive: drive.name().into(), found, expected: pool });
        }
    }
    drives.sort_by_key(|d| d.index());
    if let Some([a, b]) = drives.array_windows().find(|[a, b]| a.index() == b.index()) {
        return Err(DriveError::Duplicate {
            first: a.name().into(),
            second: b.name().into(),
            index: a.index(),
        });
    }
    let present = |i: &u16| drives.iter().any(|d| d.index().0 == *i);
    let missing: Vec<_> = (0..total).filter(|i| !present(i)).map(|i| i.to_string()).collect();
    if !missing.is_empty() {
        let present: Vec<_> = drives.iter().map(|d| format!("{} ({})", d.index(), d.name())).collect();
        return Err(DriveError::Missing { total, missing: missing.join(", "), present: present.join(", ") });
    }
    let newest = newest_epoch(&drives);
    for drive in &drives {
        let found = drive.epoch();
        if found.0.saturating_add(1) < newest.0 {
            return Err(DriveError::Stale { drive: drive.name().into(), found, newest });
        }
    }
    Ok(drives)
}

/// Raises all drives of an opened set to one epoch above the newest and returns it.
///
/// Laggards are first brought to the newest: at every moment the drives' epochs differ by one at most, so
/// however often this is interrupted, [`open_set`] still takes the set.
pub async fn raise_set(drives: &[Arc<Drive>]) -> Result<Epoch, DriveError> {
    let newest = newest_epoch(drives);
    let next = Epoch(newest.0 + 1);
    for to in [newest, next] {
        for drive in drives.iter().filter(|d| d.epoch() < to) {
            drive.raise_epoch(to).await?;
        }
    }
    Ok(next)
}

fn newest_epoch(drives: &[Arc<Drive>]) -> Epoch {
    drives.iter().map(|d| d.epoch()).max().unwrap_or_default()
}
