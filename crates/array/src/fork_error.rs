//! Why snapshots, clones, restores and groups were refused, and the problem reported to clients.

use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use thiserror::Error;
use uuid::Uuid;

/// Why a request about snapshots or groups was refused. [`ForkError::problem`] adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ForkError {
    /// Neither a snapshot nor a clone.
    #[error("volume {name} is neither a snapshot nor a clone")]
    NotForked {
        /// The volume.
        name: String,
    },
    /// The volume it came from was deleted.
    #[error("its source volume {source_name} was deleted")]
    SourceDeleted {
        /// The snapshot or clone.
        name: String,
        /// What its source was called last.
        source_name: String,
        /// Whether it was to be refreshed; else it was to be restored.
        refresh: bool,
        /// Which volume its source is in the recycle bin, if it is there.
        in_bin: Option<Uuid>,
    },
    /// Snapshots were modified after they were taken, so they no longer hold that content.
    #[error("{}, so it does not hold what was taken", modified.join("; "))]
    Modified {
        /// The snapshots, and when each was modified.
        modified: Vec<String>,
    },
    /// One of a set is not refreshed by itself.
    #[error("snapshot {name} belongs to set {set} of group {group}")]
    OneOfSet {
        /// The snapshot.
        name: String,
        /// The group.
        group: String,
        /// The set.
        set: String,
    },
    /// The group has no set of the name.
    #[error("group {group} has no set {set}")]
    NoSet {
        /// The group.
        group: String,
        /// The set asked for.
        set: String,
    },
    /// The name of the set is taken.
    #[error("group {group} already has a set {set}")]
    SetExists {
        /// The group.
        group: String,
        /// The set asked for.
        set: String,
    },
    /// The set and the group do not have the same volumes.
    #[error("set {set} does not match group {group}: {why}")]
    NotWhole {
        /// The group.
        group: String,
        /// The set.
        set: String,
        /// What is missing or too much.
        why: String,
    },
    /// A group without volumes has nothing to take snapshots of.
    #[error("group {group} has no volumes")]
    EmptyGroup {
        /// The group.
        group: String,
    },
    /// Hosts still see snapshots of a set.
    #[error("snapshots of set {set} of group {group} are mapped: {}", seen.join(", "))]
    SetMapped {
        /// The group.
        group: String,
        /// The set.
        set: String,
        /// The snapshots that are seen, and by whom.
        seen: Vec<String>,
    },
}

impl ForkError {
    /// Returns the problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let set_of = |set: &str, group: &str| format!("set {set} of group {group}");
        let (kind, title, which, next) = match self {
            Self::NotForked { name } => {
                (Kind::NotFound, "no such snapshot", format!("volume {name}"), Next::ListSnapshots)
            }
            Self::SourceDeleted { name, source_name, refresh, in_bin } => {
                let next = without_source(name, source_name, *refresh, *in_bin);
                if *refresh {
                    (Kind::NoSource, "not refreshed", format!("volume {name}"), next)
                } else {
                    (Kind::NoSource, "not restored", format!("snapshot {name}"), next)
                }
            }
            Self::Modified { modified } => {
                (Kind::Modified, "content not replaced", modified.join(", "), Next::ChooseAnotherSnapshot)
            }
            Self::OneOfSet { name, group, set } => {
                let next = Next::RefreshSet { group, set, snapshot: name };
                (Kind::InSet, "not refreshed", format!("snapshot {name}"), next)
            }
            Self::NoSet { group, set } => {
                (Kind::NotFound, "no such set", set_of(set, group), Next::ShowGroup { group })
            }
            Self::SetExists { group, set } => {
                (Kind::Exists, "snapshots not taken", set_of(set, group), Next::ChooseAnotherName)
            }
            Self::NotWhole { group, set, .. } => {
                (Kind::NotWhole, "nothing was changed", set_of(set, group), Next::MatchGroupToSet)
            }
            Self::EmptyGroup { group } => {
                (Kind::Empty, "snapshots not taken", format!("group {group}"), Next::AddToGroup { group })
            }
            Self::SetMapped { group, set, .. } => {
                (Kind::InUse, "snapshots not deleted", set_of(set, group), Next::UnmapSet { group, set })
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}

/// Returns what to do with a snapshot or clone whose source was deleted.
fn without_source<'a>(name: &'a str, source: &'a str, refresh: bool, in_bin: Option<Uuid>) -> Next<'a> {
    match (in_bin, refresh) {
        (Some(uuid), _) => Next::RestoreSourceFirst { source, uuid },
        (None, true) => Next::RefreshFromAnother { volume: name },
        (None, false) => Next::RestoreElsewhere { snapshot: name, source },
    }
}
