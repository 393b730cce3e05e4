//! Why snapshots, clones, restores and groups were refused, and how that is told.

use quoin_api::Problem;
use thiserror::Error;

/// Why a request about snapshots or groups was refused. [`ForkError::problem`] tells it with what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ForkError {
    /// Neither a snapshot nor a clone.
    #[error("volume {name} is neither a snapshot nor a clone: it comes from no other volume")]
    NotForked {
        /// The volume.
        name: String,
    },
    /// The volume it came from was deleted.
    #[error("the volume it comes from, {source_name}, was deleted")]
    SourceDeleted {
        /// The snapshot or clone.
        name: String,
        /// What its source was called last.
        source_name: String,
        /// Whether it was to be refreshed; else it was to be restored.
        refresh: bool,
    },
    /// Hosts would have what they see changed under them.
    #[error("hosts are using {}: {}", volumes.join(", "), users.join("; "))]
    InUse {
        /// The volumes whose content was to be replaced.
        volumes: Vec<String>,
        /// Who uses them.
        users: Vec<String>,
    },
    /// One of a set is not refreshed by itself.
    #[error("snapshot {name} is one of set {set} of group {group}, all of one moment")]
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
    #[error("group {group} has a set {set} already")]
    SetExists {
        /// The group.
        group: String,
        /// The set asked for.
        set: String,
    },
    /// The set and the group do not have the same volumes.
    #[error("set {set} of group {group} is not whole: {why}")]
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
    #[error("hosts see snapshots of set {set} of group {group}: {}", seen.join(", "))]
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
    /// The problem as clients are told it.
    pub fn problem(&self) -> Problem {
        let why = self.to_string();
        let conflict = |kind: &str, title: &str, which: String, next: String| {
            Problem::new(kind, 409, title, which, why.clone(), next)
        };
        match self {
            Self::NotForked { name } => Problem::new(
                "not-found",
                404,
                "no such snapshot",
                format!("volume {name}"),
                why,
                "see which there are: quoin snapshot list",
            ),
            Self::SourceDeleted { name, refresh: true, .. } => conflict(
                "no-source",
                "not refreshed",
                format!("volume {name}"),
                format!("name another volume to become what it is: quoin snapshot refresh {name} --from VOLUME"),
            ),
            Self::SourceDeleted { name, source_name, .. } => conflict(
                "no-source",
                "not restored",
                format!("snapshot {name}"),
                format!(
                    "restore another volume from it: quoin snapshot restore {name} --to VOLUME; or make a new one of \
                     it: quoin volume clone {name} {source_name}"
                ),
            ),
            Self::InUse { volumes, .. } => conflict(
                "in-use",
                "content not replaced",
                format!("volume {}", volumes.join(", ")),
                "unmount what is on them and log out, since their file systems would change under the hosts; or add \
                 --force"
                    .to_owned(),
            ),
            Self::OneOfSet { name, group, set } => conflict(
                "in-set",
                "not refreshed",
                format!("snapshot {name}"),
                format!(
                    "refresh the whole set: quoin group refresh {group} {set}; or take it out of the set: \
                     quoin snapshot promote {name}"
                ),
            ),
            Self::NoSet { group, set } => Problem::new(
                "not-found",
                404,
                "no such set",
                format!("set {set} of group {group}"),
                why,
                format!("see which there are: quoin group show {group}"),
            ),
            Self::SetExists { group, set } => conflict(
                "exists",
                "snapshots not taken",
                format!("set {set} of group {group}"),
                format!("choose another name, or delete it: quoin group delete-snapshot {group} {set}"),
            ),
            Self::NotWhole { group, set, .. } => conflict(
                "not-whole",
                "nothing was changed",
                format!("set {set} of group {group}"),
                "add or remove volumes so that the group is what it was, or restore single volumes: quoin snapshot \
                 restore NAME"
                    .to_owned(),
            ),
            Self::EmptyGroup { group } => conflict(
                "empty",
                "snapshots not taken",
                format!("group {group}"),
                format!("add volumes first: quoin group add {group} VOLUME"),
            ),
            Self::SetMapped { group, set, .. } => conflict(
                "in-use",
                "snapshots not deleted",
                format!("set {set} of group {group}"),
                format!("unmap them first, or say so: quoin group delete-snapshot {group} {set} --unmap"),
            ),
        }
    }
}
