//! The problems reported to clients for a pool that is offline or failed, and for a catalog that cannot be read.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use quoin_pool::PoolError;

/// Returns the problem of a catalog object that this version cannot read.
pub(crate) fn unreadable(key: &str, why: String) -> Problem {
    Problem::new(
        Kind::Unreadable,
        "catalog not readable",
        format!("object {key}"),
        why,
        Next::StartWriterVersion,
    )
}

/// Returns the problem of a pool that is offline.
pub(crate) fn offline(reason: &str) -> Problem {
    Problem::new(Kind::Offline, "pool offline", "the pool", reason, Next::AttachDrives)
}

/// Returns the problem of a pool that failed.
pub(crate) fn pool_problem(error: &PoolError) -> Problem {
    let (kind, title, next) = match error {
        PoolError::Offline { reason } => return offline(reason),
        PoolError::Drive(error) => return offline(&error.to_string()),
        PoolError::NoSpace => (Kind::NoSpace, "no space left", Next::FreePoolSpace),
        _ => (Kind::Pool, "change not made", Next::CheckPool),
    };
    Problem::new(kind, title, "the pool", error.to_string(), next)
}
