//! The problems reported to clients for refusals about volumes: what each is about, and what to do next.

use crate::{
    pool_problem::{offline, pool_problem, unreadable},
    words::utc_text,
};
use quoin_api::{Problem, ProblemKind as Kind};
use quoin_base::VolumeId;
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
        V::Immutable { name, until_ms } => return is_immutable(title, name, *until_ms),
        V::RetainedLonger { name, until_ms } => return is_retained_longer(title, name, *until_ms),
        V::HasImmutable { name, snapshots, until_ms } => {
            return has_immutable(title, name, snapshots, *until_ms);
        }
        V::Name(bad) => other_name(Kind::Invalid, format!("volume {:?}", bad.name)),
        V::GroupName(bad) => other_name(Kind::Invalid, format!("group {:?}", bad.name)),
        V::Exists { name, .. } | V::NamedTwice { name } => other_name(Kind::Exists, volume(name)),
        V::GroupExists { name, .. } => other_name(Kind::Exists, format!("group {name}")),
        V::BlockSize { name, .. } | V::Size { name, .. } => invalid(volume(name), "choose another size"),
        V::Tag { tag, .. } => invalid(format!("tag {tag:?}"), TAG_NEXT),
        V::Folder { path, .. } => invalid(format!("folder {path:?}"), FOLDER_NEXT),
        V::RetentionTime { .. } => invalid("the time".into(), TIME_NEXT),
        V::IsTemplate { name, .. } => is_template(name),
        V::Protected { name, .. } => is_protected(name),
        V::NoSnapshot { name } => no_snapshot(name),
        V::TailMapped { name, .. } => (Kind::DataLost, volume(name), TAIL_NEXT.into()),
        V::CannotReserve { name, .. } => (Kind::NoSpace, volume(name), SPACE_NEXT.into()),
        V::Itself { name } => (Kind::Itself, volume(name), "name another volume".into()),
        V::CopyOntoItself { name } => (Kind::Itself, volume(name), ELSEWHERE_NEXT.into()),
        V::OtherBlock { name, source_name, .. } => other_block(name, source_name),
        V::CopyUnaligned { name, .. } => invalid(volume(name), "give multiples of it, such as 0, 4K or 1G"),
        V::CopyRange { name, .. } => invalid(volume(name), RANGE_NEXT),
        V::CopyTooSmall { name, needed_bytes, .. } => too_small(name, *needed_bytes),
        V::TooManyCopies { name } => (Kind::TooMany, volume(name), COPIES_NEXT.into()),
        V::CopiedInto { name, copy, .. } => copied_into(name, *copy),
        V::InGroup { volume, other, .. } => in_group(volume, other),
        V::GroupFull { volume: name, .. } => (Kind::GroupFull, volume(name), "create another group".into()),
        V::NotInGroup { volume, group } => not_in_group(volume, group),
    };
    let (kind, which, next) = words;
    Problem::new(kind, title, which, error.to_string(), next)
}

const TAG_NEXT: &str = "give tags as KEY=VALUE, such as app=db1";
const FOLDER_NEXT: &str = "give a path of names of a-z, 0-9, '.', '_' and '-', such as prod/sql";
const TIME_NEXT: &str = "give from a second to 100 years, such as 12h, 7d or 4w";
const TAIL_NEXT: &str =
    "discard the data there in the host first (fstrim, blkdiscard); or add --force to discard it";
const SPACE_NEXT: &str =
    "choose a smaller size, make it thin, or delete volumes or unmap data in them; see quoin status";
const ELSEWHERE_NEXT: &str = "give another volume, or another place in it: --to OFFSET";
const RANGE_NEXT: &str = "give a range within it, or omit the length to copy the rest";
const COPIES_NEXT: &str =
    "wait until one has ended: quoin volume copies; or cancel one: quoin volume copy-cancel ID";

fn volume(name: &str) -> String {
    format!("volume {name}")
}

/// Returns the problem of an object that does not exist, whatever was to be done with it.
fn missing(object: &str, name: &str, error: &V) -> Problem {
    let next = format!("list them: quoin {object} list");
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
    let next = "wait until then; retention cannot be shortened and passes only while the array runs; quoin status \
                shows the retention clock";
    Problem::new(Kind::Immutable, title, volume(name), why, next)
}

/// A name breaks the rules or is taken.
fn other_name(kind: Kind, which: String) -> Words {
    (kind, which, "choose another name".into())
}

/// A value cannot be.
fn invalid(which: String, next: &str) -> Words {
    (Kind::Invalid, which, next.into())
}

fn is_template(name: &str) -> Words {
    let next = format!(
        "change a clone instead; or make it an ordinary volume again: quoin volume set {name} --no-template"
    );
    (Kind::Template, volume(name), next)
}

fn is_protected(name: &str) -> Words {
    let next =
        format!("clone it and change the clone; or let it be written to: quoin volume set {name} --writable");
    (Kind::ReadOnly, volume(name), next)
}

fn no_snapshot(name: &str) -> Words {
    let next = format!("take an immutable snapshot of it: quoin snapshot create {name} --retain 7d");
    (Kind::NoSnapshot, volume(name), next)
}

fn other_block(name: &str, source_name: &str) -> Words {
    (Kind::OtherBlock, volume(name), format!("clone it instead: quoin volume clone {source_name} NAME"))
}

fn too_small(name: &str, needed_bytes: u64) -> Words {
    let next = format!("grow it: quoin volume grow {name} --size {needed_bytes}; or copy less: --length");
    (Kind::TooSmall, volume(name), next)
}

fn copied_into(name: &str, copy: VolumeId) -> Words {
    let next = format!("wait until it has ended, or cancel it: quoin volume copy-cancel {copy}");
    (Kind::CopiedInto, volume(name), next)
}

fn in_group(name: &str, other: &str) -> Words {
    let next = format!("remove it from that group first: quoin group remove {other} {name}");
    (Kind::InGroup, volume(name), next)
}

fn not_in_group(name: &str, group: &str) -> Words {
    (Kind::NotFound, volume(name), format!("list them: quoin group show {group}"))
}

#[cfg(test)]
mod tests {
    use super::*;
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
            assert_ne!(problem.kind, Kind::Internal.urn(), "{error} has no kind of its own");
        }
    }
}
