//! Why the array refused or failed a request, and the problem reported to clients.

use crate::{
    BinError, DriveChangeError, DriveEmulateError, ExpandError, ExportError, ForkError, HostError, JobError,
    MappingError, PolicyError, PortalError, QosError, ReservationError, ReserveError, ScheduleError,
    pool_problem::{pool_problem, unreadable},
    volume_problem::volume_problem,
};
use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use quoin_pool::PoolError;
use quoin_volume::VolumeError;
use thiserror::Error;

/// Why a management request was refused or failed. [`ArrayError::problem`] adds what to do next.
#[derive(Debug, Error)]
pub enum ArrayError {
    /// About a volume.
    #[error(transparent)]
    Volume(VolumeError),
    /// About an export.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// About a schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// About a policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// About the recycle bin.
    #[error(transparent)]
    Bin(#[from] BinError),
    /// About a drive.
    #[error(transparent)]
    Drive(#[from] DriveChangeError),
    /// About a pool that is to grow with its drives.
    #[error(transparent)]
    Expand(#[from] ExpandError),
    /// About an emulated drive.
    #[error(transparent)]
    Emulate(#[from] DriveEmulateError),
    /// About a host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// About the change of a host that exists.
    #[error(transparent)]
    HostChange(HostError),
    /// About a mapping.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// About a snapshot reserve.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// About limits of IOPS and bandwidth.
    #[error(transparent)]
    Qos(#[from] QosError),
    /// About what hosts have reserved.
    #[error(transparent)]
    Reservation(#[from] ReservationError),
    /// About a portal.
    #[error(transparent)]
    Portal(#[from] PortalError),
    /// About a job, a scrub or a copy.
    #[error(transparent)]
    Job(#[from] JobError),
    /// About the change of a volume that exists.
    #[error(transparent)]
    VolumeChange(VolumeError),
    /// About snapshots, clones and groups.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// About a volume, reported under this title.
    #[error("{error}")]
    Not {
        /// What was not done.
        title: &'static str,
        /// Why.
        error: VolumeError,
    },
    /// The volume is still seen by hosts.
    #[error("volume {volume} is mapped to {}", hosts.join(", "))]
    VolumeMapped {
        /// The volume.
        volume: String,
        /// The hosts that see it.
        hosts: Vec<String>,
    },
    /// Connected hosts or clients use what the request would remove or change.
    #[error("{which} is in use: {}", users.join("; "))]
    InUse {
        /// What was not done.
        title: &'static str,
        /// The object.
        which: String,
        /// Who is connected, from where, and what they see.
        users: Vec<String>,
    },
    /// The volume is one of a consistency group.
    #[error("volume {volume} is in consistency group {group}, and its sets would no longer match the group")]
    GroupMember {
        /// The volume.
        volume: String,
        /// The group.
        group: String,
    },
    /// A request that asks for two opposite things.
    #[error("{which} cannot be shown both read-only and writable")]
    ReadOnlyAndWritable {
        /// What was not done.
        title: &'static str,
        /// The object.
        which: String,
    },
    /// Settings of the pool that do not go together.
    #[error("{why}")]
    Setting {
        /// What is wrong with them.
        why: String,
    },
    /// An object in the catalog that this version cannot read.
    #[error("catalog object {key}: {why}")]
    Record {
        /// The object's key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl From<VolumeError> for ArrayError {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::Pool(error) => Self::Pool(error),
            error => Self::Volume(error),
        }
    }
}

impl ArrayError {
    /// Refusals of the layer below, reported under this title.
    pub(crate) fn not(title: &'static str) -> impl Fn(VolumeError) -> Self {
        move |error| match error {
            VolumeError::Pool(error) => Self::Pool(error),
            error => Self::Not { title, error },
        }
    }

    /// Returns the problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let (kind, title, which, next) = match self {
            Self::Volume(error) => return volume_problem(error, "volume not created"),
            Self::VolumeChange(error) => return volume_problem(error, "volume not changed"),
            Self::Not { title, error } => return volume_problem(error, title),
            Self::Host(error) => return error.problem("host not created"),
            Self::HostChange(error) => return error.problem("host not changed"),
            Self::Mapping(error) => return error.problem(),
            Self::Fork(error) => return error.problem(),
            Self::Bin(error) => return error.problem(),
            Self::Export(error) => return error.problem(),
            Self::Schedule(error) => return error.problem(),
            Self::Policy(error) => return error.problem(),
            Self::Reserve(error) => return error.problem(),
            Self::Qos(error) => return error.problem(),
            Self::Portal(error) => return error.problem(),
            Self::Reservation(error) => return error.problem(),
            Self::Job(error) => return error.problem(),
            Self::Drive(error) => return error.problem(),
            Self::Expand(error) => return error.problem(),
            Self::Emulate(error) => return error.problem(),
            Self::Pool(error) => return pool_problem(error),
            Self::Record { key, .. } => return unreadable(key, self.to_string()),
            Self::VolumeMapped { volume, .. } => {
                (Kind::InUse, "volume not deleted", format!("volume {volume}"), Next::UnmapVolume { volume })
            }
            Self::GroupMember { volume, group } => {
                let next = Next::LeaveGroup { group, volume };
                (Kind::InGroup, "volume not deleted", format!("volume {volume}"), next)
            }
            Self::InUse { title, which, .. } => (Kind::InUse, *title, which.clone(), Next::LogOut),
            Self::Setting { .. } => {
                (Kind::Invalid, "pool settings not changed", "the pool".to_owned(), Next::GiveThresholds)
            }
            Self::ReadOnlyAndWritable { title, which } => {
                (Kind::Invalid, *title, which.clone(), Next::GiveOneOfTheTwo)
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_say_what_which_why_and_next() {
        let error = ArrayError::VolumeMapped { volume: "v1".into(), hosts: vec!["h1".into(), "h2".into()] };
        let problem = error.problem();
        assert_eq!((problem.status, problem.kind.as_str()), (409, "urn:quoin:problem:in-use"));
        assert_eq!(
            problem.to_string(),
            "volume not deleted: volume v1 is mapped to h1, h2\n  next: unmap it first, or use: \
             quoin volume delete v1 --unmap"
        );
        let problem = ArrayError::from(HostError::NotFound { name: "h9".into() }).problem();
        assert_eq!((problem.status, problem.title.as_str()), (404, "no such host"));
        assert_eq!(ArrayError::Pool(PoolError::NoSpace).problem().status, 507);
    }
}
