//! Why snapshots, clones, restores and groups were refused, and the problem reported to clients.

use quoin_api::{Problem, ProblemKind};
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
    /// The problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let why = self.to_string();
        let conflict = |kind: ProblemKind, title: &str, which: String, next: String| {
            Problem::new(kind, title, which, why.clone(), next)
        };
        match self {
            Self::NotForked { name } => Problem::new(
                ProblemKind::NotFound,
                "no such snapshot",
                format!("volume {name}"),
                why,
                "list them: quoin snapshot list",
            ),
            Self::SourceDeleted { name, source_name, refresh, in_bin: Some(uuid) } => conflict(
                ProblemKind::NoSource,
                if *refresh { "not refreshed" } else { "not restored" },
                format!("{} {name}", if *refresh { "volume" } else { "snapshot" }),
                format!("restore {source_name} from the recycle bin first: quoin recycle-bin restore {uuid}"),
            ),
            Self::SourceDeleted { name, refresh: true, .. } => conflict(
                ProblemKind::NoSource,
                "not refreshed",
                format!("volume {name}"),
                format!("refresh it from another volume: quoin snapshot refresh {name} --from VOLUME"),
            ),
            Self::SourceDeleted { name, source_name, .. } => conflict(
                ProblemKind::NoSource,
                "not restored",
                format!("snapshot {name}"),
                format!(
                    "restore another volume from it: quoin snapshot restore {name} --to VOLUME; or clone \
                     it: quoin volume clone {name} {source_name}"
                ),
            ),
            Self::Modified { modified } => conflict(
                ProblemKind::Modified,
                "content not replaced",
                modified.join(", "),
                "choose another snapshot; or add --force to take it with what was written to it".to_owned(),
            ),
            Self::OneOfSet { name, group, set } => conflict(
                ProblemKind::InSet,
                "not refreshed",
                format!("snapshot {name}"),
                format!(
                    "refresh the whole set: quoin group refresh {group} {set}; or detach the snapshot from the set: \
                     quoin snapshot promote {name}"
                ),
            ),
            Self::NoSet { group, set } => Problem::new(
                ProblemKind::NotFound,
                "no such set",
                format!("set {set} of group {group}"),
                why,
                format!("list them: quoin group show {group}"),
            ),
            Self::SetExists { group, set } => conflict(
                ProblemKind::Exists,
                "snapshots not taken",
                format!("set {set} of group {group}"),
                "choose another name".to_owned(),
            ),
            Self::NotWhole { group, set, .. } => conflict(
                ProblemKind::NotWhole,
                "nothing was changed",
                format!("set {set} of group {group}"),
                "add or remove volumes until the group matches the set, or restore single volumes: quoin snapshot \
                 restore NAME"
                    .to_owned(),
            ),
            Self::EmptyGroup { group } => conflict(
                ProblemKind::Empty,
                "snapshots not taken",
                format!("group {group}"),
                format!("add volumes first: quoin group add {group} VOLUME"),
            ),
            Self::SetMapped { group, set, .. } => conflict(
                ProblemKind::InUse,
                "snapshots not deleted",
                format!("set {set} of group {group}"),
                format!("unmap them first, or use: quoin group delete-snapshot {group} {set} --unmap"),
            ),
        }
    }
}
