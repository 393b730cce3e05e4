//! Why the array refused or failed a request, and the problem reported to clients.

use crate::volume_problem::volume_problem;
use crate::{BinError, ExportError, ForkError, ScheduleError};
use quoin_api::{CopyState, JobKind, JobState, Problem, ProblemKind};
use quoin_pool::PoolError;
use quoin_volume::{BadName, VolumeError};
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
    /// About the recycle bin.
    #[error(transparent)]
    Bin(#[from] BinError),
    /// A snapshot reserve is one of two things.
    #[error("a snapshot reserve is from 1 to 100 percent, or a size")]
    Reserve,
    /// Setting a snapshot reserve deletes snapshots or takes volumes offline, and that was not confirmed.
    #[error("{effect}")]
    ReserveUnconfirmed {
        /// Whose reserve it is.
        which: String,
        /// What it would do.
        effect: String,
    },
    /// Too many volumes and groups have a snapshot reserve.
    #[error("{most} volumes and groups have a snapshot reserve, the maximum")]
    TooManyReserves {
        /// Whose reserve it is.
        which: String,
        /// How many may have one.
        most: usize,
    },
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
    /// The name of a host breaks the rules for names.
    #[error(transparent)]
    Name(#[from] BadName),
    /// About the change of a host that exists.
    #[error(transparent)]
    HostChange(Box<ArrayError>),
    /// No host has the name.
    #[error("host {name} does not exist")]
    NoHost {
        /// The name asked for.
        name: String,
    },
    /// The name is taken.
    #[error("host {name} already exists, with {}", initiators.join(", "))]
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
    #[error("host {host} has these volumes mapped: {}", volumes.join(", "))]
    HostMapped {
        /// The host.
        host: String,
        /// The volumes it sees.
        volumes: Vec<String>,
    },
    /// The host's mappings do not fit one transaction.
    #[error("host {host} has {mappings} mappings, more than can be changed at once")]
    TooManyToRename {
        /// The host.
        host: String,
        /// How many mappings it has.
        mappings: usize,
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
    /// The logical unit number is too high.
    #[error("LUN {lun} is out of range")]
    LunOutOfRange {
        /// The number asked for.
        lun: u16,
    },
    /// The logical unit number is in use.
    #[error("LUN {lun} of host {host} is volume {volume}")]
    LunTaken {
        /// The host.
        host: String,
        /// The number asked for.
        lun: u16,
        /// The volume that has it.
        volume: String,
    },
    /// The host sees as many volumes as it can.
    #[error("host {host} has 1000 mappings, the maximum")]
    LunsUsedUp {
        /// The host.
        host: String,
    },
    /// The host sees the volume already.
    #[error("host {host} already has volume {volume}, as LUN {lun}")]
    MappedAlready {
        /// The volume.
        volume: String,
        /// The host.
        host: String,
        /// The number it has.
        lun: u16,
    },
    /// The host does not see the volume.
    #[error("volume {volume} is not mapped to host {host}")]
    NotMapped {
        /// The volume.
        volume: String,
        /// The host.
        host: String,
    },
    /// A scrub runs already.
    #[error("a scrub is already running")]
    ScrubRunning,
    /// No scrub runs.
    #[error("no scrub is running")]
    NoScrub,
    /// No job has the identifier.
    #[error("there is no job {id}, or it ended a while ago")]
    NoJob {
        /// The identifier asked for.
        id: String,
    },
    /// The job has ended.
    #[error("job {id} has ended: it is {state}")]
    JobEnded {
        /// The job.
        id: String,
        /// How it ended.
        state: JobState,
    },
    /// The job does what cannot be left half done.
    #[error("a {kind} job cannot be cancelled")]
    JobGoesOn {
        /// The job.
        id: String,
        /// What it does.
        kind: JobKind,
    },
    /// No copy has the number, or it ended too long ago.
    #[error("there is no copy {id}; the array lists running copies and the last 32 that ended")]
    NoCopy {
        /// The number asked for.
        id: u32,
    },
    /// The copy has ended.
    #[error("copy {id} has already ended: {state}")]
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

/// The title of refusals of hosts that cannot be created as requested.
const HOST_NOT_CREATED: &str = "host not created";

impl From<VolumeError> for ArrayError {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::Pool(error) => Self::Pool(error),
            error => Self::Volume(error),
        }
    }
}

impl ArrayError {
    /// The problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let why = self.to_string();
        let invalid = |title: &str, which: String, next: &str| {
            Problem::new(ProblemKind::Invalid, title, which, why.clone(), next)
        };
        let conflict = |kind: ProblemKind, title: &str, which: String, next: String| {
            Problem::new(kind, title, which, why.clone(), next)
        };
        let missing = |which: String, next: &str| {
            Problem::new(ProblemKind::NotFound, format!("no such {}", word(&which)), which, why.clone(), next)
        };
        match self {
            Self::Volume(error) => volume_problem(error, "volume not created"),
            Self::VolumeChange(error) => volume_problem(error, "volume not changed"),
            Self::Not { title, error } => volume_problem(error, title),
            Self::Fork(error) => error.problem(),
            Self::Bin(error) => error.problem(),
            Self::Pool(error) => pool_problem(error),
            Self::Record { key, .. } => unreadable(key, why),
            Self::Reserve => {
                let next = "give one of the two, such as --percent 20 or --size 100G";
                invalid("snapshot reserve not set", "the snapshot reserve".to_owned(), next)
            }
            Self::ReserveUnconfirmed { which, .. } => conflict(
                ProblemKind::Unconfirmed,
                "snapshot reserve not set",
                which.clone(),
                "to set it all the same, confirm: add --yes, or \"confirm\": true to the request; or choose a larger \
                 reserve"
                    .to_owned(),
            ),
            Self::TooManyReserves { which, .. } => conflict(
                ProblemKind::TooMany,
                "snapshot reserve not set",
                which.clone(),
                "remove one that is not needed: quoin snapshot reserve lists them".to_owned(),
            ),
            Self::Export(error) => error.problem(),
            Self::Schedule(error) => error.problem(),
            Self::ScrubRunning => conflict(
                ProblemKind::Running,
                "scrub not started",
                "the pool".to_owned(),
                "show its progress: quoin scrub status; or stop it: quoin scrub stop".to_owned(),
            ),
            Self::NoScrub => conflict(
                ProblemKind::NotRunning,
                "scrub not stopped",
                "the pool".to_owned(),
                "show the result of the last scrub: quoin scrub status".to_owned(),
            ),
            Self::NoJob { id } => missing(format!("job {id}"), "list the jobs: quoin job list"),
            Self::JobEnded { id, .. } => conflict(
                ProblemKind::NotRunning,
                "job not cancelled",
                format!("job {id}"),
                format!("see its outcome: quoin job show {id}"),
            ),
            Self::JobGoesOn { id, .. } => conflict(
                ProblemKind::NotCancellable,
                "job not cancelled",
                format!("job {id}"),
                format!("follow it to its end: quoin job watch {id}"),
            ),
            Self::NoCopy { id } => missing(format!("copy {id}"), "list them: quoin volume copies"),
            Self::CopyEnded { id, .. } => conflict(
                ProblemKind::NotRunning,
                "copy not cancelled",
                format!("copy {id}"),
                format!("show its result: quoin volume copies {id}"),
            ),
            Self::HostChange(error) => {
                let problem = error.problem();
                let told = |text: &str| text.replacen(HOST_NOT_CREATED, "host not changed", 1);
                Problem { title: told(&problem.title), detail: told(&problem.detail), ..problem }
            }
            Self::Name(bad) => {
                invalid(HOST_NOT_CREATED, format!("host {:?}", bad.name), "choose another name")
            }
            Self::NoHost { name } => missing(format!("host {name}"), "list them: quoin host list"),
            Self::HostExists { name, .. } => {
                conflict(ProblemKind::Exists, HOST_NOT_CREATED, format!("host {name}"), "choose another name".to_owned())
            }
            Self::NoInitiator { host } => invalid(
                HOST_NOT_CREATED,
                format!("host {host}"),
                "give at least one, such as --initiator iqn.2026-11.test:h1",
            ),
            Self::Initiator { initiator, .. } => invalid(
                HOST_NOT_CREATED,
                format!("initiator {initiator:?}"),
                "give the initiator name of the host, such as iqn.1993-08.org.debian:01:abcdef; on Linux it is \
                 in /etc/iscsi/initiatorname.iscsi",
            ),
            Self::InitiatorTaken { initiator, host } => conflict(
                ProblemKind::InitiatorTaken,
                HOST_NOT_CREATED,
                format!("initiator {initiator}"),
                format!("map volumes to host {host} instead, or give that host other initiators first"),
            ),
            Self::Chap { host, .. } => invalid(
                "credentials not set",
                format!("host {host}"),
                "use a different random secret for each direction; 12 to 16 characters work with every initiator",
            ),
            Self::ChapSetAndRemoved { host } => {
                invalid("host not changed", format!("host {host}"), "give only one of the two")
            }
            Self::TooManyToRename { host, .. } => conflict(
                ProblemKind::TooMany,
                "host not renamed",
                format!("host {host}"),
                "unmap volumes from it until it has 250 at most, rename it, and map them again".to_owned(),
            ),
            Self::HostMapped { host, .. } => conflict(
                ProblemKind::InUse,
                "host not deleted",
                format!("host {host}"),
                format!("unmap them first, or use: quoin host delete {host} --unmap"),
            ),
            Self::VolumeMapped { volume, .. } => conflict(
                ProblemKind::InUse,
                "volume not deleted",
                format!("volume {volume}"),
                format!("unmap it first, or use: quoin volume delete {volume} --unmap"),
            ),
            Self::InUse { title, which, .. } => conflict(
                ProblemKind::InUse,
                title,
                which.clone(),
                "unmount it there and log out first; or add --force, and the hosts' I/O may fail".to_owned(),
            ),
            Self::GroupMember { volume, group } => conflict(
                ProblemKind::InGroup,
                "volume not deleted",
                format!("volume {volume}"),
                format!(
                    "take it out of the group first: quoin group remove {group} {volume}; or add --force"
                ),
            ),
            Self::ReadOnlyAndWritable { title, which } => {
                invalid(title, which.clone(), "give only one of the two")
            }
            Self::LunOutOfRange { lun } => {
                invalid("volume not mapped", format!("LUN {lun}"), "choose a LUN from 0 to 16383, or omit it")
            }
            Self::LunTaken { host, lun, .. } => conflict(
                ProblemKind::LunTaken,
                "volume not mapped",
                format!("LUN {lun} of host {host}"),
                "choose another LUN, or omit it to get the lowest free one".to_owned(),
            ),
            Self::LunsUsedUp { host } => conflict(
                ProblemKind::LunsUsedUp,
                "volume not mapped",
                format!("host {host}"),
                "unmap a volume that it no longer needs".to_owned(),
            ),
            Self::MappedAlready { volume, host, .. } => conflict(
                ProblemKind::Exists,
                "volume not mapped",
                format!("volume {volume}, host {host}"),
                format!(
                    "nothing needs to be done; to change what the host may do: quoin mapping set {volume} --host {host}"
                ),
            ),
            Self::NotMapped { volume, host } => {
                missing(format!("mapping of volume {volume} to host {host}"), "list them: quoin mappings")
            }
        }
    }
}

/// A catalog object that this version cannot read.
pub(crate) fn unreadable(key: &str, why: String) -> Problem {
    Problem::new(
        ProblemKind::Unreadable,
        "catalog not readable",
        format!("object {key}"),
        why,
        "start the Quoin version that wrote it; or stop the array and run quoin check",
    )
}

/// The kind of object that `which` names.
fn word(which: &str) -> &str {
    which.split(' ').next().unwrap_or(which)
}

pub(crate) fn offline(reason: &str) -> Problem {
    Problem::new(
        ProblemKind::Offline,
        "pool offline",
        "the pool",
        reason,
        "attach its drives; the array then reopens the pool. See quoin status and quoin events",
    )
}

pub(crate) fn pool_problem(error: &PoolError) -> Problem {
    match error {
        PoolError::NoSpace => Problem::new(
            ProblemKind::NoSpace,
            "no space left",
            "the pool",
            error.to_string(),
            "delete volumes or unmap data in them, then try again",
        ),
        PoolError::Offline { reason } => offline(reason),
        PoolError::Drive(error) => offline(&error.to_string()),
        error => Problem::new(
            ProblemKind::Pool,
            "change not made",
            "the pool",
            error.to_string(),
            "see quoin status and the log; or stop the array and run quoin check",
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
            "volume not deleted: volume v1 is mapped to h1, h2\n  next: unmap it first, or use: \
             quoin volume delete v1 --unmap"
        );
        let problem = ArrayError::NoHost { name: "h9".into() }.problem();
        assert_eq!((problem.status, problem.title.as_str()), (404, "no such host"));
        assert_eq!(ArrayError::Pool(PoolError::NoSpace).problem().status, 507);
    }
}
