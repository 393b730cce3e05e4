//! Why snapshots, clones, restores and groups were refused, and the problem reported to clients.

use quoin_api::{Problem, ProblemKind as Kind};
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
        let (kind, title, which, next): (_, _, _, String) = match self {
            Self::NotForked { name } => {
                let next = "list them: quoin snapshot list";
                (Kind::NotFound, "no such snapshot", format!("volume {name}"), next.into())
            }
            Self::SourceDeleted { name, source_name, refresh, in_bin } => {
                let next = without_source(name, source_name, *refresh, *in_bin);
                match refresh {
                    true => (Kind::NoSource, "not refreshed", format!("volume {name}"), next),
                    false => (Kind::NoSource, "not restored", format!("snapshot {name}"), next),
                }
            }
            Self::Modified { modified } => {
                let next = "choose another snapshot; or add --force to take it with what was written to it";
                (Kind::Modified, "content not replaced", modified.join(", "), next.into())
            }
            Self::OneOfSet { name, group, set } => {
                let next = format!(
                    "refresh the whole set: quoin group refresh {group} {set}; or detach the snapshot from the set: \
                     quoin snapshot promote {name}"
                );
                (Kind::InSet, "not refreshed", format!("snapshot {name}"), next)
            }
            Self::NoSet { group, set } => {
                let next = format!("list them: quoin group show {group}");
                (Kind::NotFound, "no such set", set_of(set, group), next)
            }
            Self::SetExists { group, set } => {
                (Kind::Exists, "snapshots not taken", set_of(set, group), "choose another name".into())
            }
            Self::NotWhole { group, set, .. } => {
                let next = "add or remove volumes until the group matches the set, or restore single volumes: quoin \
                            snapshot restore NAME";
                (Kind::NotWhole, "nothing was changed", set_of(set, group), next.into())
            }
            Self::EmptyGroup { group } => {
                let next = format!("add volumes first: quoin group add {group} VOLUME");
                (Kind::Empty, "snapshots not taken", format!("group {group}"), next)
            }
            Self::SetMapped { group, set, .. } => {
                let next =
                    format!("unmap them first, or use: quoin group delete-snapshot {group} {set} --unmap");
                (Kind::InUse, "snapshots not deleted", set_of(set, group), next)
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}

/// Returns what to do with a snapshot or clone whose source was deleted.
fn without_source(name: &str, source_name: &str, refresh: bool, in_bin: Option<Uuid>) -> String {
    match (in_bin, refresh) {
        (Some(uuid), _) => {
            format!("restore {source_name} from the recycle bin first: quoin recycle-bin restore {uuid}")
        }
        (None, true) => {
            format!("refresh it from another volume: quoin snapshot refresh {name} --from VOLUME")
        }
        (None, false) => format!(
            "restore another volume from it: quoin snapshot restore {name} --to VOLUME; or clone it: quoin volume clone \
             {name} {source_name}"
        ),
    }
}
