//! How refusals about volumes are told.

use crate::error::{offline, pool_problem, unreadable};
use quoin_api::Problem;
use quoin_volume::VolumeError;

/// The problem as clients are told it; `title` says what was not done.
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
            invalid(format!("volume {name}"), "ask again with another size")
        }
        V::Tag { tag, .. } => invalid(format!("tag {tag:?}"), "give tags as KEY=VALUE, such as app=db1"),
        V::TailMapped { name, .. } => conflict(
            "data-lost",
            name,
            "discard what lies there in the host first (fstrim, blkdiscard); or add --force to lose it"
                .to_owned(),
        ),
        V::CannotReserve { name, .. } => Problem::new(
            "no-space",
            507,
            title,
            format!("volume {name}"),
            why,
            "ask for less, make it thin, or delete volumes or unmap data in them; see quoin status",
        ),
        V::Exists { name, .. } => conflict(
            "exists",
            name,
            format!("choose another name, or delete the one that exists: quoin volume delete {name}"),
        ),
        V::NotFound { name } => Problem::new(
            "not-found",
            404,
            "no such volume",
            format!("volume {name}"),
            why,
            "see which there are: quoin volume list",
        ),
        V::Offline { reason } => offline(reason),
        V::Pool(error) => pool_problem(error),
        V::Record { key, .. } => unreadable(key, why),
    }
}
