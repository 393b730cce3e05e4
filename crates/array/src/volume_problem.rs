//! The problems reported to clients for refusals about volumes.

use crate::error::{offline, pool_problem, unreadable};
use crate::retention::utc_text;
use quoin_api::Problem;
use quoin_volume::VolumeError;

/// The problem as reported to clients; `title` says what was not done.
pub(crate) fn volume_problem(error: &VolumeError, title: &str) -> Problem {
    use VolumeError as V;
    let why = error.to_string();
    let invalid = |which: String, next: &str| Problem::new("invalid", 422, title, which, why.clone(), next);
    let conflict = |kind: &str, name: &str, next: String| {
        Problem::new(kind, 409, title, format!("volume {name}"), why.clone(), next)
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
            "template",
            name,
            format!(
                "change a clone instead; or make it an ordinary volume again: quoin volume set {name} --no-template"
            ),
        ),
        V::Protected { name, .. } => conflict(
            "read-only",
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
            "no-snapshot",
            name,
            format!("take an immutable snapshot of it: quoin snapshot create {name} --retain 7d"),
        ),
        V::RetentionTime { .. } => {
            invalid("the time".to_owned(), "give from a second to 100 years, such as 12h, 7d or 4w")
        }
        V::TailMapped { name, .. } => conflict(
            "data-lost",
            name,
            "discard the data there in the host first (fstrim, blkdiscard); or add --force to discard it"
                .to_owned(),
        ),
        V::CannotReserve { name, .. } => Problem::new(
            "no-space",
            507,
            title,
            format!("volume {name}"),
            why,
            "choose a smaller size, make it thin, or delete volumes or unmap data in them; see quoin status",
        ),
        V::Exists { name, .. } => conflict("exists", name, "choose another name".to_owned()),
        V::NotFound { name } => Problem::new(
            "not-found",
            404,
            "no such volume",
            format!("volume {name}"),
            why,
            "list them: quoin volume list",
        ),
        V::NamedTwice { name } => conflict("exists", name, "choose another name".to_owned()),
        V::Itself { name } => conflict("itself", name, "name another volume".to_owned()),
        V::OtherBlock { name, source_name, .. } => {
            conflict("other-block", name, format!("clone it instead: quoin volume clone {source_name} NAME"))
        }
        V::CopyUnaligned { name, .. } => {
            invalid(format!("volume {name}"), "give multiples of it, such as 0, 4K or 1G")
        }
        V::CopyRange { name, .. } => {
            invalid(format!("volume {name}"), "give a range within it, or omit the length to copy the rest")
        }
        V::CopyTooSmall { name, needed_bytes, .. } => conflict(
            "too-small",
            name,
            format!("grow it: quoin volume grow {name} --size {needed_bytes}; or copy less: --length"),
        ),
        V::CopyOntoItself { name } => {
            conflict("itself", name, "give another volume, or another place in it: --to OFFSET".to_owned())
        }
        V::TooManyCopies { name } => conflict(
            "too-many",
            name,
            "wait until one has ended: quoin volume copies; or cancel one: quoin volume copy-cancel ID"
                .to_owned(),
        ),
        V::CopiedInto { name, copy, .. } => conflict(
            "copied-into",
            name,
            format!("wait until it has ended, or cancel it: quoin volume copy-cancel {copy}"),
        ),
        V::GroupName(bad) => invalid(format!("group {:?}", bad.name), "choose another name"),
        V::NoGroup { name } => Problem::new(
            "not-found",
            404,
            "no such group",
            format!("group {name}"),
            why,
            "list them: quoin group list",
        ),
        V::GroupExists { name, .. } => {
            Problem::new("exists", 409, title, format!("group {name}"), why, "choose another name")
        }
        V::InGroup { volume, other, .. } => conflict(
            "in-group",
            volume,
            format!("remove it from that group first: quoin group remove {other} {volume}"),
        ),
        V::GroupFull { volume, .. } => conflict("group-full", volume, "create another group".to_owned()),
        V::NotInGroup { volume, group } => Problem::new(
            "not-found",
            404,
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
    Problem::new("immutable", 409, title, format!("volume {name}"), why, next)
}
