//! The problems reported to clients for a pool that is offline or failed, and for a catalog that cannot be read.

use quoin_api::{Problem, ProblemKind as Kind};
use quoin_pool::PoolError;

/// Returns the problem of a catalog object that this version cannot read.
pub(crate) fn unreadable(key: &str, why: String) -> Problem {
    let next = "start the Quoin version that wrote it; or stop the array and run quoin check";
    Problem::new(Kind::Unreadable, "catalog not readable", format!("object {key}"), why, next)
}

/// Returns the problem of a pool that is offline.
pub(crate) fn offline(reason: &str) -> Problem {
    let next = "attach its drives; the array then reopens the pool. See quoin status and quoin events";
    Problem::new(Kind::Offline, "pool offline", "the pool", reason, next)
}

/// Returns the problem of a pool that failed.
pub(crate) fn pool_problem(error: &PoolError) -> Problem {
    let (kind, title, next) = match error {
        PoolError::Offline { reason } => return offline(reason),
        PoolError::Drive(error) => return offline(&error.to_string()),
        PoolError::NoSpace => {
            (Kind::NoSpace, "no space left", "delete volumes or unmap data in them, then try again")
        }
        _ => {
            let next = "see quoin status and the log; or stop the array and run quoin check";
            (Kind::Pool, "change not made", next)
        }
    };
    Problem::new(kind, title, "the pool", error.to_string(), next)
}
