//! `quoin snapshot reserve`: how much snapshots may hold, of the pool, of a volume, or of a group.

use crate::{
    Failure, Output, Size,
    client::{Client, segment},
    confirm::is_answered_yes,
    output::{pairs, table},
    parse_size,
    report::list,
    size_text,
    time::utc_text,
    view::optional_size,
};
use clap::{Args, ValueEnum};
use quoin_api::{Reserve, ReservePolicy, ReservePreview, ReserveScope, ReserveSet};

pub(crate) const EXAMPLES: &str = "Without a limit the command lists all reserves, or shows the one of the volume or group. \
                                   Each reserve is enforced on its own. If setting one deletes snapshots or takes volumes \
                                   offline at once, the command lists them and asks for confirmation.\n\n\
                                   Immutable, mapped and exported snapshots stay, and so does the newest \
                                   snapshot of a volume that was deleted.\n\nExamples:\n  \
                                   quoin --data /srv/a snapshot reserve\n  \
                                   quoin --data /srv/a snapshot reserve --percent 20\n  \
                                   quoin --data /srv/a snapshot reserve --size 100G --policy offline-volume\n  \
                                   quoin --data /srv/a snapshot reserve --volume v1 --size 10G\n  \
                                   quoin --data /srv/a snapshot reserve --group db1 --percent 30 --yes\n  \
                                   quoin --data /srv/a snapshot reserve --volume v1 --off";

/// What to do when snapshots hold more than the reserve.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Policy {
    /// Delete the oldest snapshots that free space
    #[default]
    DeleteOldest,
    /// Take volumes with snapshots offline until snapshots hold less
    OfflineVolume,
}

/// Options of `quoin snapshot reserve`; without a limit the command shows reserves.
#[derive(Args, Debug)]
#[group(skip)]
pub struct ReserveArgs {
    /// The reserve of this volume instead of the pool's
    #[arg(long, conflicts_with = "group")]
    volume: Option<String>,
    /// The reserve of the volumes of this group instead of the pool's
    #[arg(long)]
    group: Option<String>,
    /// Limit in percent: of the pool's space for host data, of the volume's size, or of the sizes of the group's volumes
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=100), group = "limit")]
    percent: Option<u8>,
    /// Limit as a size
    #[arg(long, value_parser = parse_size, group = "limit")]
    size: Option<Size>,
    /// No limit
    #[arg(long, group = "limit")]
    off: bool,
    /// What to do when snapshots hold more than the limit
    #[arg(long, value_enum, default_value_t)]
    policy: Policy,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// Sets or shows reserves.
pub(crate) fn run(client: &Client, output: &Output, args: &ReserveArgs) -> Result<(), Failure> {
    let path = match (&args.volume, &args.group) {
        (Some(volume), _) => format!("/volumes/{}/snapshot-reserve", segment(volume)),
        (_, Some(group)) => format!("/groups/{}/snapshot-reserve", segment(group)),
        _ => "/snapshot-reserve".to_owned(),
    };
    let policy = match args.policy {
        Policy::DeleteOldest => ReservePolicy::DeleteOldest,
        Policy::OfflineVolume => ReservePolicy::OfflineVolume,
    };
    let (percent, bytes) = (args.percent, args.size.map(|size| size.0));
    if args.off {
        client.delete(&path)?;
    } else if percent.is_some() || bytes.is_some() {
        let request = ReserveSet { percent, bytes, policy, confirm: false };
        let confirm = confirmed(client, &path, &request, args.yes)?;
        client.put::<Reserve>(&path, &ReserveSet { confirm, ..request })?;
    } else if args.volume.is_none() && args.group.is_none() {
        return list(client, output, "/snapshot-reserves", many);
    }
    output.show(&client.get::<Reserve>(&path)?, one);
    Ok(())
}

/// Shows what setting a reserve does at once, and asks for confirmation. True if there is something to confirm.
fn confirmed(client: &Client, path: &str, request: &ReserveSet, yes: bool) -> Result<bool, Failure> {
    let preview: ReservePreview = client.post(&format!("{path}/preview"), request)?;
    let question = match (preview.would_delete.len(), preview.would_take_offline.len()) {
        (0, 0) => return Ok(false),
        (0, _) => "Set the reserve and take these volumes offline?",
        _ => "Set the reserve and delete these snapshots?",
    };
    eprintln!("{}", effect(&preview));
    if yes || is_answered_yes(question) {
        return Ok(true);
    }
    Err(Failure::new(
        "snapshot reserve not set",
        "the snapshot reserve",
        "what it does at once, as listed above, was not confirmed",
        "to set it all the same, add --yes; or choose a larger reserve",
    ))
}

/// The effects that a reserve would have at once.
fn effect(preview: &ReservePreview) -> String {
    let ReservePreview { limit_bytes, held_bytes, would_delete, held_after_bytes, would_take_offline } =
        preview;
    let holds =
        format!("Snapshots hold {}, the reserve is {}.", size_text(*held_bytes), size_text(*limit_bytes));
    if !would_take_offline.is_empty() {
        let row = |name: &String| vec![name.clone()];
        let rows = would_take_offline.iter().map(row).collect();
        return format!("{holds} This takes volumes offline at once:\n{}", table(&["volume"], rows, ""));
    }
    let rows = would_delete.iter().flat_map(|deletion| {
        // Snapshots that are deleted together free space together.
        deletion.snapshots.iter().enumerate().map(|(at, name)| {
            let freed = if at == 0 { size_text(deletion.freed_bytes) } else { "together".to_owned() };
            vec![name.clone(), utc_text(deletion.taken_ms), freed]
        })
    });
    let rows = table(&["snapshot", "taken", "frees"], rows.collect(), "");
    let left = if held_after_bytes < limit_bytes {
        String::new()
    } else {
        format!(
            "\nSnapshots then still hold {}, more than the reserve: the others may not be deleted, or free nothing.",
            size_text(*held_after_bytes)
        )
    };
    format!("{holds} This deletes snapshots at once, in this order:\n{rows}{left}")
}

fn of(reserve: &Reserve) -> String {
    match (&reserve.name, reserve.scope) {
        (Some(name), scope) => format!("{scope} {name}"),
        (None, scope) => scope.to_string(),
    }
}

fn limit(reserve: &Reserve) -> String {
    if reserve.policy.is_none() {
        return "none".to_owned();
    }
    let whole = match reserve.scope {
        ReserveScope::Pool => "the pool",
        ReserveScope::Volume => "the volume",
        ReserveScope::Group => "the volumes",
    };
    let part = reserve.percent.map(|percent| format!(", {percent} % of {whole}")).unwrap_or_default();
    format!("{}{part}", optional_size(reserve.limit_bytes))
}

fn offline(reserve: &Reserve) -> String {
    match reserve.offline_volumes.as_slice() {
        [] => "-".to_owned(),
        volumes => volumes.join(", "),
    }
}

fn policy(reserve: &Reserve) -> String {
    reserve.policy.map_or_else(|| "-".to_owned(), |policy| policy.to_string())
}

fn many(reserves: &[Reserve]) -> String {
    let row = |r: &Reserve| vec![of(r), limit(r), optional_size(r.held_bytes), policy(r), offline(r)];
    table(
        &["of", "reserve", "held", "beyond it", "offline"],
        reserves.iter().map(row).collect(),
        "no snapshot reserves",
    )
}

fn one(reserve: &Reserve) -> String {
    if reserve.policy.is_none() {
        let held = optional_size(reserve.held_bytes);
        let whose = if reserve.scope == ReserveScope::Pool { "the pool".to_owned() } else { of(reserve) };
        return format!("no snapshot reserve is set for {whose}; snapshots hold {held}");
    }
    pairs(vec![
        ("of", of(reserve)),
        ("reserve", limit(reserve)),
        ("held", optional_size(reserve.held_bytes)),
        ("beyond it", policy(reserve)),
        ("offline", offline(reserve)),
    ])
}
