//! The problems reported to clients for refusals about volumes: what each is about, and what to do next.

use crate::{
    pool_problem::{offline, pool_problem, unreadable},
    words::utc_text,
};
use quoin_api::{Problem, ProblemKind as Kind};
use quoin_volume::VolumeError as V;

/// What the array adds to an error: its kind, the object it is about, and what to do next.
type Words = (Kind, String, String);

/// Returns the problem as reported to clients; `title` says what was not done.
pub(crate) fn volume_problem(error: &V, title: &str) -> Problem {
    let words = match error {
        V::Offline { reason } => return offline(reason),
        V::Pool(error) => return pool_problem(error),
        V::Record { key, .. } => return unreadable(key, error.to_string()),
        V::NotFound { name } => return missing("volume", name, error),
        V::NoGroup { name } => return missing("group", name, error),
        V::Immutable { name, until_ms } => {
            return immutable(title, name, *until_ms, format!("snapshot {name} is"));
        }
        V::RetainedLonger { name, until_ms } => {
            let what = format!("retention can only be extended, and snapshot {name} is");
            return immutable(title, name, *until_ms, what);
        }
        V::HasImmutable { name, snapshots, until_ms } => {
            let held = snapshots.join(", ");
            return immutable(title, name, *until_ms, format!("snapshots of volume {name} ({held}) are"));
        }
        V::Name(_) | V::GroupName(_) | V::Exists { .. } | V::NamedTwice { .. } => of_name(error),
        V::GroupExists { .. } => of_name(error),
        V::BlockSize { .. } | V::Size { .. } | V::Tag { .. } | V::Folder { .. } => of_setting(error),
        V::RetentionTime { .. } => of_setting(error),
        V::IsTemplate { .. } | V::Protected { .. } | V::NoSnapshot { .. } => of_content(error),
        V::TailMapped { .. } | V::CannotReserve { .. } => of_content(error),
        V::Itself { .. } | V::OtherBlock { .. } | V::CopyUnaligned { .. } => of_copy(error),
        V::CopyRange { .. } | V::CopyTooSmall { .. } | V::CopyOntoItself { .. } => of_copy(error),
        V::TooManyCopies { .. } | V::CopiedInto { .. } => of_copy(error),
        V::InGroup { .. } | V::GroupFull { .. } | V::NotInGroup { .. } => of_membership(error),
    };
    let (kind, which, next) = words;
    Problem::new(kind, title, which, error.to_string(), next)
}

fn volume(name: &str) -> String {
    format!("volume {name}")
}

/// Returns the problem of an object that does not exist, whatever was to be done with it.
fn missing(object: &str, name: &str, error: &V) -> Problem {
    let next = format!("list them: quoin {object} list");
    let (title, which) = (format!("no such {object}"), format!("{object} {name}"));
    Problem::new(Kind::NotFound, title, which, error.to_string(), next)
}

/// A request was to change or delete something immutable.
fn immutable(title: &str, name: &str, until_ms: u64, what: String) -> Problem {
    let why = format!("{what} immutable until {}", utc_text(until_ms));
    let next = "wait until then; retention cannot be shortened and passes only while the array runs; quoin status \
                shows the retention clock";
    Problem::new(Kind::Immutable, title, volume(name), why, next)
}

/// Returns the words about an error that is in none of the groups that the functions below are for.
fn unexplained() -> Words {
    (Kind::Internal, "the volume".into(), "see quoin status and the log".into())
}

/// Returns the words about names that break the rules or are taken.
fn of_name(error: &V) -> Words {
    let (kind, which) = match error {
        V::Name(bad) => (Kind::Invalid, format!("volume {:?}", bad.name)),
        V::GroupName(bad) => (Kind::Invalid, format!("group {:?}", bad.name)),
        V::Exists { name, .. } | V::NamedTwice { name } => (Kind::Exists, volume(name)),
        V::GroupExists { name, .. } => (Kind::Exists, format!("group {name}")),
        _ => return unexplained(),
    };
    (kind, which, "choose another name".into())
}

/// Returns the words about sizes, tags, folders and times that cannot be.
fn of_setting(error: &V) -> Words {
    let (which, next) = match error {
        V::BlockSize { name, .. } | V::Size { name, .. } => (volume(name), "choose another size"),
        V::Tag { tag, .. } => (format!("tag {tag:?}"), "give tags as KEY=VALUE, such as app=db1"),
        V::Folder { path, .. } => (
            format!("folder {path:?}"),
            "give a path of names of a-z, 0-9, '.', '_' and '-', such as prod/sql",
        ),
        V::RetentionTime { .. } => {
            ("the time".into(), "give from a second to 100 years, such as 12h, 7d or 4w")
        }
        _ => return unexplained(),
    };
    (Kind::Invalid, which, next.into())
}

/// Returns the words about what a volume is or holds that is in the way.
fn of_content(error: &V) -> Words {
    match error {
        V::IsTemplate { name, .. } => {
            let next = format!(
                "change a clone instead; or make it an ordinary volume again: quoin volume set {name} --no-template"
            );
            (Kind::Template, volume(name), next)
        }
        V::Protected { name, .. } => {
            let next = format!(
                "clone it and change the clone; or let it be written to: quoin volume set {name} --writable"
            );
            (Kind::ReadOnly, volume(name), next)
        }
        V::NoSnapshot { name } => {
            let next = format!("take an immutable snapshot of it: quoin snapshot create {name} --retain 7d");
            (Kind::NoSnapshot, volume(name), next)
        }
        V::TailMapped { name, .. } => {
            let next =
                "discard the data there in the host first (fstrim, blkdiscard); or add --force to discard it";
            (Kind::DataLost, volume(name), next.into())
        }
        V::CannotReserve { name, .. } => {
            let next = "choose a smaller size, make it thin, or delete volumes or unmap data in them; see quoin status";
            (Kind::NoSpace, volume(name), next.into())
        }
        _ => unexplained(),
    }
}

/// Returns the words about copies, also those that replace a whole volume.
fn of_copy(error: &V) -> Words {
    match error {
        V::Itself { name } => (Kind::Itself, volume(name), "name another volume".into()),
        V::CopyOntoItself { name } => {
            (Kind::Itself, volume(name), "give another volume, or another place in it: --to OFFSET".into())
        }
        V::OtherBlock { name, source_name, .. } => {
            let next = format!("clone it instead: quoin volume clone {source_name} NAME");
            (Kind::OtherBlock, volume(name), next)
        }
        V::CopyUnaligned { name, .. } => {
            (Kind::Invalid, volume(name), "give multiples of it, such as 0, 4K or 1G".into())
        }
        V::CopyRange { name, .. } => {
            let next = "give a range within it, or omit the length to copy the rest";
            (Kind::Invalid, volume(name), next.into())
        }
        V::CopyTooSmall { name, needed_bytes, .. } => {
            let next =
                format!("grow it: quoin volume grow {name} --size {needed_bytes}; or copy less: --length");
            (Kind::TooSmall, volume(name), next)
        }
        V::TooManyCopies { name } => {
            let next =
                "wait until one has ended: quoin volume copies; or cancel one: quoin volume copy-cancel ID";
            (Kind::TooMany, volume(name), next.into())
        }
        V::CopiedInto { name, copy, .. } => {
            let next = format!("wait until it has ended, or cancel it: quoin volume copy-cancel {copy}");
            (Kind::CopiedInto, volume(name), next)
        }
        _ => unexplained(),
    }
}

/// Returns the words about volumes in consistency groups.
fn of_membership(error: &V) -> Words {
    match error {
        V::InGroup { volume: name, other, .. } => {
            let next = format!("remove it from that group first: quoin group remove {other} {name}");
            (Kind::InGroup, volume(name), next)
        }
        V::GroupFull { volume: name, .. } => (Kind::GroupFull, volume(name), "create another group".into()),
        V::NotInGroup { volume: name, group } => {
            (Kind::NotFound, volume(name), format!("list them: quoin group show {group}"))
        }
        _ => unexplained(),
    }
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
            assert_ne!(problem.kind, Kind::Internal.urn(), "{error} is in a group that does not know it");
        }
    }
}
