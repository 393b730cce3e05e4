//! `quoin snapshot reserve`: how much of the pool snapshots may hold.

use crate::{
    Failure, Output, Size, client::Client, output::pairs, parse_size, size_text, view::optional_size,
};
use clap::{Args, ValueEnum};
use quoin_api::{Reserve, ReservePolicy, ReserveSet};

pub(crate) const EXAMPLES: &str = "Snapshots hold at least the space in the pool that volumes and clones do not have \
                                   mapped.\n\nExamples:\n  quoin --data /srv/a snapshot reserve\n  \
                                   quoin --data /srv/a snapshot reserve --percent 20\n  \
                                   quoin --data /srv/a snapshot reserve --size 100G --policy offline-volume\n  \
                                   quoin --data /srv/a snapshot reserve --off";

/// What to do when snapshots hold more than the reserve.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Policy {
    /// Delete the oldest snapshots, except immutable, mapped and exported ones
    #[default]
    DeleteOldest,
    /// Take volumes with snapshots offline until snapshots hold less
    OfflineVolume,
}

/// Options of `quoin snapshot reserve`; without options the command shows the reserve.
#[derive(Args, Debug)]
#[group(skip)]
pub struct ReserveArgs {
    /// Limit in percent of the space for host data
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
}

/// Sets or shows the reserve.
pub(crate) fn run(client: &Client, output: &Output, args: &ReserveArgs) -> Result<(), Failure> {
    const PATH: &str = "/snapshot-reserve";
    let policy = match args.policy {
        Policy::DeleteOldest => ReservePolicy::DeleteOldest,
        Policy::OfflineVolume => ReservePolicy::OfflineVolume,
    };
    let (percent, bytes) = (args.percent, args.size.map(|size| size.0));
    if args.off {
        client.delete(PATH)?;
    } else if percent.is_some() || bytes.is_some() {
        client.put::<Reserve>(PATH, &ReserveSet { percent, bytes, policy })?;
    }
    output.show(&client.get::<Reserve>(PATH)?, text);
    Ok(())
}

fn text(reserve: &Reserve) -> String {
    let Some(policy) = reserve.policy else {
        return format!("no snapshot reserve is set; snapshots hold {}", optional_size(reserve.held_bytes));
    };
    let limit = reserve.limit_bytes.map_or_else(|| "-".to_owned(), size_text);
    let part = reserve.percent.map(|percent| format!(", {percent} % of the pool")).unwrap_or_default();
    let offline = match reserve.offline_volumes.as_slice() {
        [] => "-".to_owned(),
        volumes => volumes.join(", "),
    };
    pairs(vec![
        ("reserve", format!("{limit}{part}")),
        ("held", optional_size(reserve.held_bytes)),
        ("beyond it", policy.to_string()),
        ("offline", offline),
    ])
}
