//! Why the array refused or failed a request, and how that is told.

use crate::volume_problem::volume_problem;
use crate::{ExportError, ForkError, ScheduleError};
use quoin_api::{CopyState, Problem};
use quoin_pool::PoolError;
use quoin_volume::{BadName, VolumeError};
use thiserror::Error;

/// Why a management request was refused or failed. [`ArrayError::problem`] tells it with what to do next.
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
    /// A snapshot reserve is one of two things.
    #[error("a snapshot reserve is from 1 to 100 percent of the pool, or a size")]
    Reserve,
    /// About the change of a volume that exists.
    #[error(transparent)]
    VolumeChange(VolumeError),
    /// About snapshots, clones and groups.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// About a volume, told under a title of its own.
    #[error("{error}")]
    Not {
        /// What was not done.
        title: &'static str,
        /// Why.
        error: VolumeError,
    },
    /// The name of a host breaks the rules for names.
    #[error(transparent)]
    Name(#[from] BadName),
    /// No host has the name.
    #[error("there is no host {name}")]
    NoHost {
        /// The name asked for.
        name: String,
    },
    /// The name is taken.
    #[error("a host {name} exists already, with {}", initiators.join(", "))]
    HostExists {
        /// The name.
        name: String,
        /// The existing host's initiators.
        initiators: Vec<String>,
    },
    /// A host without an initiator could never log in.
    #[error("host {host} has no initiator")]
    NoInitiator {
        /// The host asked for.
        host: String,
    },
    /// Not the name of an initiator.
    #[error("{initiator:?} is not an iSCSI name: {why}")]
    Initiator {
        /// What was given.
        initiator: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The initiator belongs to another host.
    #[error("initiator {initiator} belongs to host {host}")]
    InitiatorTaken {
        /// The initiator.
        initiator: String,
        /// The host that has it.
        host: String,
    },
    /// A host's credentials break the rules for them.
    #[error("{why}")]
    Chap {
        /// The host.
        host: String,
        /// What is wrong with them.
        why: String,
    },
    /// A change of a host that says two things.
    #[error("CHAP cannot be set and removed at once")]
    ChapSetAndRemoved {
        /// The host.
        host: String,
    },
    /// The host still sees volumes.
    #[error("host {host} sees {}", volumes.join(", "))]
    HostMapped {
        /// The host.
        host: String,
        /// The volumes it sees.
        volumes: Vec<String>,
    },
    /// The volume is still seen by hosts.
    #[error("volume {volume} is seen by {}", hosts.join(", "))]
    VolumeMapped {
        /// The volume.
        volume: String,
        /// The hosts that see it.
        hosts: Vec<String>,
    },
    /// Somebody is connected who may write to what shall become a template.
    #[error("volume {volume} can be written to by {}", writers.join(", "))]
    Writers {
        /// The volume.
        volume: String,
        /// Who is connected.
        writers: Vec<String>,
    },
    /// The logical unit number is too high.
    #[error("LUN {lun} is out of range")]
    LunOutOfRange {
        /// The number asked for.
        lun: u16,
    },
    /// The logical unit number is in use.
    #[error("host {host} sees volume {volume} as LUN {lun}")]
    LunTaken {
        /// The host.
        host: String,
        /// The number asked for.
        lun: u16,
        /// The volume that has it.
        volume: String,
    },
    /// The host sees as many volumes as it can.
    #[error("host {host} sees 1000 volumes, the most it can")]
    LunsUsedUp {
        /// The host.
        host: String,
    },
    /// The host sees the volume already.
    #[error("host {host} sees volume {volume} already, as LUN {lun}")]
    MappedAlready {
        /// The volume.
        volume: String,
        /// The host.
        host: String,
        /// The number it has.
        lun: u16,
    },
    /// The host does not see the volume.
    #[error("host {host} does not see volume {volume}")]
    NotMapped {
        /// The volume.
        volume: String,
        /// The host.
        host: String,
    },
    /// A scrub runs already.
    #[error("a scrub is running already")]
    ScrubRunning,
    /// No scrub runs.
    #[error("no scrub is running")]
    NoScrub,
    /// No copy has the number, or it ended too long ago.
    #[error("there is no copy {id}, or it ended long ago")]
    NoCopy {
        /// The number asked for.
        id: u32,
    },
    /// The copy has ended.
    #[error("copy {id} has ended: it is {state}")]
    CopyEnded {
        /// The copy.
        id: u32,
        /// How it ended.
        state: CopyState,
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
    /// The problem as clients are told it.
    pub fn problem(&self) -> Problem {
        let why = self.to_string();
        let invalid = |title: &str, which: String, next: &str| {
            Problem::new("invalid", 422, title, which, why.clone(), next)
        };
        let conflict = |kind: &str, title: &str, which: String, next: String| {
            Problem::new(kind, 409, title, which, why.clone(), next)
        };
        let missing = |which: String, next: &str| {
            Problem::new("not-found", 404, format!("no such {}", word(&which)), which, why.clone(), next)
        };
        match self {
            Self::Volume(error) => volume_problem(error, "volume not created"),
            Self::VolumeChange(error) => volume_problem(error, "volume not changed"),
            Self::Not { title, error } => volume_problem(error, title),
            Self::Fork(error) => error.problem(),
            Self::Pool(error) => pool_problem(error),
            Self::Record { key, .. } => unreadable(key, why),
            Self::Reserve => {
                let next = "give one of the two, such as --percent 20 or --size 100G";
                invalid("snapshot reserve not set", "the snapshot reserve".to_owned(), next)
            }
            Self::Export(error) => error.problem(),
            Self::Schedule(error) => error.problem(),
            Self::ScrubRunning => conflict(
                "running",
                "scrub not started",
                "the pool".to_owned(),
                "see how far it is: quoin scrub status; or stop it: quoin scrub stop".to_owned(),
            ),
            Self::NoScrub => conflict(
                "not-running",
                "scrub not stopped",
                "the pool".to_owned(),
                "see what the last one found: quoin scrub status".to_owned(),
            ),
            Self::NoCopy { id } => missing(format!("copy {id}"), "see which there are: quoin volume copies"),
            Self::CopyEnded { id, .. } => conflict(
                "not-running",
                "copy not cancelled",
                format!("copy {id}"),
                format!("see what came of it: quoin volume copies {id}"),
            ),
            Self::Name(bad) => {
                invalid("host not created", format!("host {:?}", bad.name), "choose another name")
            }
            Self::NoHost { name } => missing(format!("host {name}"), "see which there are: quoin host list"),
            Self::HostExists { name, .. } => conflict(
                "exists",
                "host not created",
                format!("host {name}"),
                format!("choose another name, or delete the one that exists: quoin host delete {name}"),
            ),
            Self::NoInitiator { host } => invalid(
                "host not created",
                format!("host {host}"),
                "name at least one: --initiator iqn.2026-11.test:h1",
            ),
            Self::Initiator { initiator, .. } => invalid(
                "host not created",
                format!("initiator {initiator:?}"),
                "give the name the host logs in with, such as iqn.1993-08.org.debian:01:abcdef; on Linux it is \
                 in /etc/iscsi/initiatorname.iscsi",
            ),
            Self::InitiatorTaken { initiator, host } => conflict(
                "initiator-taken",
                "host not created",
                format!("initiator {initiator}"),
                format!("map volumes to host {host} instead, or delete that host first"),
            ),
            Self::Chap { host, .. } => invalid(
                "credentials not set",
                format!("host {host}"),
                "give each direction a random secret of its own, of 12 to 16 characters if any initiator is to take it",
            ),
            Self::ChapSetAndRemoved { host } => {
                invalid("host not changed", format!("host {host}"), "say one of the two")
            }
            Self::HostMapped { host, .. } => conflict(
                "in-use",
                "host not deleted",
                format!("host {host}"),
                format!("unmap them first, or say so: quoin host delete {host} --unmap"),
            ),
            Self::VolumeMapped { volume, .. } => conflict(
                "in-use",
                "volume not deleted",
                format!("volume {volume}"),
                format!("unmap it first, or say so: quoin volume delete {volume} --unmap"),
            ),
            Self::Writers { volume, .. } => conflict(
                "in-use",
                "volume not made a template",
                format!("volume {volume}"),
                "log them out or unmap it first; or add --force: their writes fail from then on".to_owned(),
            ),
            Self::LunOutOfRange { lun } => {
                invalid("volume not mapped", format!("LUN {lun}"), "choose a LUN from 0 to 16383, or none")
            }
            Self::LunTaken { host, lun, .. } => conflict(
                "lun-taken",
                "volume not mapped",
                format!("LUN {lun} of host {host}"),
                "choose another LUN, or none to be given the lowest that is free".to_owned(),
            ),
            Self::LunsUsedUp { host } => conflict(
                "luns-used-up",
                "volume not mapped",
                format!("host {host}"),
                "unmap a volume it needs no more".to_owned(),
            ),
            Self::MappedAlready { volume, host, .. } => conflict(
                "exists",
                "volume not mapped",
                format!("volume {volume}, host {host}"),
                format!(
                    "nothing, or unmap it first to give it another LUN: quoin unmap {volume} --host {host}"
                ),
            ),
            Self::NotMapped { volume, host } => missing(
                format!("mapping of volume {volume} to host {host}"),
                "see which there are: quoin mappings",
            ),
        }
    }
}

/// A catalog object that this version cannot read.
pub(crate) fn unreadable(key: &str, why: String) -> Problem {
    Problem::new(
        "unreadable",
        500,
        "catalog not readable",
        format!("object {key}"),
        why,
        "start the version of Quoin that wrote it, and run quoin check offline",
    )
}

/// The kind of object that `which` names.
fn word(which: &str) -> &str {
    which.split(' ').next().unwrap_or(which)
}

pub(crate) fn offline(reason: &str) -> Problem {
    Problem::new(
        "offline",
        503,
        "pool offline",
        "the pool",
        reason,
        "bring its drives back; it is opened again by itself. See quoin status and quoin events",
    )
}

pub(crate) fn pool_problem(error: &PoolError) -> Problem {
    match error {
        PoolError::NoSpace => Problem::new(
            "no-space",
            507,
            "no space left",
            "the pool",
            error.to_string(),
            "delete volumes or unmap data in them, then try again",
        ),
        PoolError::Offline { reason } => offline(reason),
        PoolError::Drive(error) => offline(&error.to_string()),
        error => Problem::new(
            "pool",
            500,
            "change not made",
            "the pool",
            error.to_string(),
            "see quoin status and the log; stop the array and run quoin check",
        ),
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
            "volume not deleted: volume v1 is seen by h1, h2\n  next: unmap it first, or say so: \
             quoin volume delete v1 --unmap"
        );
        let problem = ArrayError::NoHost { name: "h9".into() }.problem();
        assert_eq!((problem.status, problem.title.as_str()), (404, "no such host"));
        assert_eq!(ArrayError::Pool(PoolError::NoSpace).problem().status, 507);
    }
}
