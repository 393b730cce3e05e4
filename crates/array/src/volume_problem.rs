//! The problems reported to clients for refusals about volumes: what each is about, and what to do next.

use crate::{
    pool_problem::{offline, pool_problem, unreadable},
    words::utc_text,
};
use quoin_api::{NextStep as Next, Problem, ProblemKind as Kind};
use quoin_volume::VolumeError as V;

/// What the array adds to an error: its kind, the object it is about, and what to do next.
type Words<'a> = (Kind, String, Next<'a>);

/// Returns the problem as reported to clients; `title` says what was not done.
pub(crate) fn volume_problem(error: &V, title: &str) -> Problem {
    let words = match error {
        V::Offline { reason } => return offline(reason),
        V::Pool(error) => return pool_problem(error),
        V::Record { key, .. } => return unreadable(key, error.to_string()),
        V::NotFound { name } => return missing("volume", name, error, Next::ListVolumes),
        V::NoGroup { name } => return missing("group", name, error, Next::ListGroups),
        V::Immutable { name, until_ms } => return is_immutable(title, name, *until_ms),
        V::RetainedLonger { name, until_ms } => return is_retained_longer(title, name, *until_ms),
        V::HasImmutable { name, snapshots, until_ms } => {
            return has_immutable(title, name, snapshots, *until_ms);
        }
        V::Name(bad) => other_name(Kind::Invalid, format!("volume {:?}", bad.name)),
        V::GroupName(bad) => other_name(Kind::Invalid, format!("group {:?}", bad.name)),
        V::Exists { name, .. } | V::NamedTwice { name } => other_name(Kind::Exists, volume(name)),
        V::GroupExists { name, .. } => other_name(Kind::Exists, format!("group {name}")),
        V::BlockSize { name, .. } | V::Size { name, .. } => invalid(volume(name), Next::ChooseAnotherSize),
        V::Tag { tag, .. } => invalid(format!("tag {tag:?}"), Next::WriteTag),
        V::Folder { path, .. } => invalid(format!("folder {path:?}"), Next::WriteFolder),
        V::RetentionTime { .. } => invalid("the time".into(), Next::GiveRetention),
        V::IsTemplate { name, .. } => (Kind::Template, volume(name), Next::ChangeClone { template: name }),
        V::Protected { name, .. } => (Kind::ReadOnly, volume(name), Next::AllowWrites { volume: name }),
        V::NoSnapshot { name } => {
            (Kind::NoSnapshot, volume(name), Next::TakeImmutableSnapshot { volume: name })
        }
        V::TailMapped { name, .. } => (Kind::DataLost, volume(name), Next::DiscardTail),
        V::Trimming { name } => (Kind::Trimming, volume(name), Next::AwaitTail { volume: name }),
        V::CannotReserve { name, .. } => (Kind::NoSpace, volume(name), Next::NeedLessSpace),
        V::Itself { name } => (Kind::Itself, volume(name), Next::NameAnotherVolume),
        V::CopyOntoItself { name } => (Kind::Itself, volume(name), Next::CopyElsewhere),
        V::OtherBlock { name, source_name: source, .. } => {
            (Kind::OtherBlock, volume(name), Next::CloneInstead { source })
        }
        V::CopyUnaligned { name, .. } => invalid(volume(name), Next::CopyWholeBlocks),
        V::CopyRange { name, .. } => invalid(volume(name), Next::CopyWithin),
        V::CopyTooSmall { name, needed_bytes, .. } => {
            let next = Next::GrowOrCopyLess { volume: name, needed_bytes: *needed_bytes };
            (Kind::TooSmall, volume(name), next)
        }
        V::TooManyCopies { name } => (Kind::TooMany, volume(name), Next::AwaitSomeCopy),
        V::CopiedInto { name, copy, .. } => {
            (Kind::CopiedInto, volume(name), Next::AwaitCopy { copy: copy.0 })
        }
        V::InGroup { volume: name, other, .. } => {
            (Kind::InGroup, volume(name), Next::RemoveFromGroup { group: other, volume: name })
        }
        V::GroupFull { volume: name, .. } => (Kind::GroupFull, volume(name), Next::CreateAnotherGroup),
        V::NotInGroup { volume: name, group } => (Kind::NotFound, volume(name), Next::ShowGroup { group }),
    };
    let (kind, which, next) = words;
    Problem::new(kind, title, which, error.to_string(), next)
}

fn volume(name: &str) -> String {
    format!("volume {name}")
}

/// Returns the problem of an object that does not exist, whatever was to be done with it.
fn missing(object: &str, name: &str, error: &V, next: Next<'_>) -> Problem {
    let (title, which) = (format!("no such {object}"), format!("{object} {name}"));
    Problem::new(Kind::NotFound, title, which, error.to_string(), next)
}

fn is_immutable(title: &str, name: &str, until_ms: u64) -> Problem {
    immutable(title, name, until_ms, format!("snapshot {name} is"))
}

fn is_retained_longer(title: &str, name: &str, until_ms: u64) -> Problem {
    immutable(title, name, until_ms, format!("retention can only be extended, and snapshot {name} is"))
}

fn has_immutable(title: &str, name: &str, snapshots: &[String], until_ms: u64) -> Problem {
    let held = snapshots.join(", ");
    immutable(title, name, until_ms, format!("snapshots of volume {name} ({held}) are"))
}

/// A request was to change or delete something immutable.
fn immutable(title: &str, name: &str, until_ms: u64, what: String) -> Problem {
    let why = format!("{what} immutable until {}", utc_text(until_ms));
    Problem::new(Kind::Immutable, title, volume(name), why, Next::AwaitRetention)
}

/// A name breaks the rules or is taken.
fn other_name(kind: Kind, which: String) -> Words<'static> {
    (kind, which, Next::ChooseAnotherName)
}

/// A value cannot be.
fn invalid(which: String, next: Next<'_>) -> Words<'_> {
    (Kind::Invalid, which, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_base::VolumeId;
    use quoin_volume::BadName;
    use uuid::Uuid;

    /// One refusal of each variant that is not about the whole pool.
    fn refusals() -> Vec<V> {
        let text = str::to_owned;
        let (n, bad) = (|| text("v1"), || BadName { name: text("A"), why: text("is bad") });
        vec![
            V::Name(bad()),
            V::BlockSize { name: n(), block_bytes: 3 },
            V::Size { name: n(), size_bytes: 3, why: "is odd" },
            V::Tag { tag: text("t"), why: "is bad" },
            V::Folder { path: text("a//b"), why: text("is bad") },
            V::IsTemplate { name: n(), what: "writing" },
            V::Protected { name: n(), what: "writing" },
            V::Immutable { name: n(), until_ms: 99_999_999 },
            V::HasImmutable { name: n(), snapshots: vec![text("s1"), text("s2")], until_ms: 99_999_999 },
            V::RetainedLonger { name: n(), until_ms: 99_999_999 },
            V::NoSnapshot { name: n() },
            V::RetentionTime { seconds: 5 },
            V::TailMapped { name: n(), size_bytes: 5 },
            V::Trimming { name: n() },
            V::CannotReserve { name: n(), wanted_bytes: 5, free_bytes: 4 },
            V::Exists { name: n(), size_bytes: 5, uuid: Uuid::nil() },
            V::NotFound { name: n() },
            V::NamedTwice { name: n() },
            V::Itself { name: n() },
            V::OtherBlock { name: n(), block_bytes: 5, source_name: text("v2"), source_block_bytes: 6 },
            V::CopyUnaligned { name: n(), what: "the offset", bytes: 5, block_bytes: 512 },
            V::CopyRange { name: n(), from_bytes: 1, length_bytes: 2, size_bytes: 3 },
            V::CopyTooSmall { name: n(), size_bytes: 3, needed_bytes: 4 },
            V::CopyOntoItself { name: n() },
            V::TooManyCopies { name: n() },
            V::CopiedInto { name: n(), copy: VolumeId(7), source_name: text("v2") },
            V::GroupName(bad()),
            V::NoGroup { name: n() },
            V::GroupExists { name: n(), members: 3 },
            V::InGroup { volume: n(), group: text("g1"), other: text("g2") },
            V::GroupFull { group: text("g1"), volume: n() },
            V::NotInGroup { volume: n(), group: text("g1") },
        ]
    }

    #[test]
    fn each_refusal_is_explained() {
        for error in refusals() {
            let problem = volume_problem(&error, "not done");
            assert_ne!(problem.kind, Kind::Internal.urn(), "{error} has no kind of its own");
        }
    }
}
