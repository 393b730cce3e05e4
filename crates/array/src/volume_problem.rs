//! The problems reported to clients for refusals about volumes.

use crate::error::{offline, pool_problem, unreadable};
use crate::retention::utc_text;
use quoin_api::{Problem, ProblemKind};
use quoin_volume::VolumeError;

/// The problem as reported to clients; `title` says what was not done.
pub(crate) fn volume_problem(error: &VolumeError, title: &str) -> Problem {
    use VolumeError as V;
    let why = error.to_string();
    let invalid =
        |which: String, next: &str| Problem::new(ProblemKind::Invalid, title, which, why.clone(), next);
    let conflict = |kind: ProblemKind, name: &str, next: String| {
        Problem::new(kind, title, format!("volume {name}"), why.clone(), next)
    };
    match error {
        V::Name(bad) => invalid(format!("volume {:?}", bad.name), "choose another name"),
        V::BlockSize { name, .. } | V::Size { name, .. } => {
            invalid(format!("volume {name}"), "choose another size")
        }
        V::Tag { tag, .. } => invalid(format!("tag {tag:?}"), "give tags as KEY=VALUE, such as app=db1"),
        V::Folder { path, .. } => invalid(
            format!("folder {path:?}"),
            "give a path of names of a-z, 0-9, '.', '_' and '-', such as prod/sql",
        ),
        V::IsTemplate { name, .. } => conflict(
            ProblemKind::Template,
            name,
            format!(
                "change a clone instead; or make it an ordinary volume again: quoin volume set {name} --no-template"
            ),
        ),
        V::Protected { name, .. } => conflict(
            ProblemKind::ReadOnly,
            name,
            format!(
                "clone it and change the clone; or let it be written to: quoin volume set {name} --writable"
            ),
        ),
        V::Immutable { name, until_ms } => immutable(title, name, *until_ms, format!("snapshot {name} is")),
        V::RetainedLonger { name, until_ms } => immutable(
            title,
            name,
            *until_ms,
            format!("retention can only be extended, and snapshot {name} is"),
        ),
        V::HasImmutable { name, snapshots, until_ms } => {
            let held = snapshots.join(", ");
            immutable(title, name, *until_ms, format!("snapshots of volume {name} ({held}) are"))
        }
        V::NoSnapshot { name } => conflict(
            ProblemKind::NoSnapshot,
            name,
            format!("take an immutable snapshot of it: quoin snapshot create {name} --retain 7d"),
        ),
        V::RetentionTime { .. } => {
            invalid("the time".to_owned(), "give from a second to 100 years, such as 12h, 7d or 4w")
        }
        V::TailMapped { name, .. } => conflict(
            ProblemKind::DataLost,
            name,
            "discard the data there in the host first (fstrim, blkdiscard); or add --force to discard it"
                .to_owned(),
        ),
        V::CannotReserve { name, .. } => Problem::new(
            ProblemKind::NoSpace,
            title,
            format!("volume {name}"),
            why,
            "choose a smaller size, make it thin, or delete volumes or unmap data in them; see quoin status",
        ),
        V::Exists { name, .. } => conflict(ProblemKind::Exists, name, "choose another name".to_owned()),
        V::NotFound { name } => Problem::new(
            ProblemKind::NotFound,
            "no such volume",
            format!("volume {name}"),
            why,
            "list them: quoin volume list",
        ),
        V::NamedTwice { name } => conflict(ProblemKind::Exists, name, "choose another name".to_owned()),
        V::Itself { name } => conflict(ProblemKind::Itself, name, "name another volume".to_owned()),
        V::OtherBlock { name, source_name, .. } => conflict(
            ProblemKind::OtherBlock,
            name,
            format!("clone it instead: quoin volume clone {source_name} NAME"),
        ),
        V::CopyUnaligned { name, .. } => {
            invalid(format!("volume {name}"), "give multiples of it, such as 0, 4K or 1G")
        }
        V::CopyRange { name, .. } => {
            invalid(format!("volume {name}"), "give a range within it, or omit the length to copy the rest")
        }
        V::CopyTooSmall { name, needed_bytes, .. } => conflict(
            ProblemKind::TooSmall,
            name,
            format!("grow it: quoin volume grow {name} --size {needed_bytes}; or copy less: --length"),
        ),
        V::CopyOntoItself { name } => conflict(
            ProblemKind::Itself,
            name,
            "give another volume, or another place in it: --to OFFSET".to_owned(),
        ),
        V::TooManyCopies { name } => conflict(
            ProblemKind::TooMany,
            name,
            "wait until one has ended: quoin volume copies; or cancel one: quoin volume copy-cancel ID"
                .to_owned(),
        ),
        V::CopiedInto { name, copy, .. } => conflict(
            ProblemKind::CopiedInto,
            name,
            format!("wait until it has ended, or cancel it: quoin volume copy-cancel {copy}"),
        ),
        V::GroupName(bad) => invalid(format!("group {:?}", bad.name), "choose another name"),
        V::NoGroup { name } => Problem::new(
            ProblemKind::NotFound,
            "no such group",
            format!("group {name}"),
            why,
            "list them: quoin group list",
        ),
        V::GroupExists { name, .. } => {
            Problem::new(ProblemKind::Exists, title, format!("group {name}"), why, "choose another name")
        }
        V::InGroup { volume, other, .. } => conflict(
            ProblemKind::InGroup,
            volume,
            format!("remove it from that group first: quoin group remove {other} {volume}"),
        ),
        V::GroupFull { volume, .. } => {
            conflict(ProblemKind::GroupFull, volume, "create another group".to_owned())
        }
        V::NotInGroup { volume, group } => Problem::new(
            ProblemKind::NotFound,
            title,
            format!("volume {volume}"),
            why,
            format!("list them: quoin group show {group}"),
        ),
        V::Offline { reason } => offline(reason),
        V::Pool(error) => pool_problem(error),
        V::Record { key, .. } => unreadable(key, why),
    }
}

/// A request was to change or delete something immutable.
fn immutable(title: &str, name: &str, until_ms: u64, what: String) -> Problem {
    let why = format!("{what} immutable until {}", utc_text(until_ms));
    let next = "wait until then; retention cannot be shortened and passes only while the array runs; quoin status shows the retention clock";
    Problem::new(ProblemKind::Immutable, title, format!("volume {name}"), why, next)
}
