//! `quoin space`: how the pool's space is used.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::pairs,
    pool::spare_text,
    report::show,
    size_text,
};
use clap::{Args, Subcommand};
use quoin_api::{PoolSpace, VolumeSpace};

pub(crate) const EXAMPLES: &str = "Written is what hosts wrote and did not unmap; unique counts each block of it once; \
                                   physical is what these blocks take, compressed or not. Acknowledged data that is not destaged yet is counted separately; it is \
                                   destaged within seconds.\n\nExamples:\n  \
                                   quoin --data /srv/a space\n  \
                                   quoin --data /srv/a space volume v1     # and what deleting it frees\n  \
                                   quoin --data /srv/a space group g1\n  \
                                   quoin --data /srv/a space -o json | jq .efficiency_ratio";

/// Options of `quoin space`.
#[derive(Args, Debug)]
pub struct SpaceArgs {
    #[command(subcommand)]
    of: Option<Of>,
}

/// Of what.
#[derive(Subcommand, Debug)]
enum Of {
    /// Show the pool, the default
    #[command(after_help = "Examples:\n  quoin --data /srv/a space pool")]
    Pool,
    /// Show a volume
    #[command(after_help = "Examples:\n  quoin --data /srv/a space volume v1")]
    Volume {
        /// The volume
        name: String,
    },
    /// Show all volumes of a consistency group together
    #[command(after_help = "Examples:\n  quoin --data /srv/a space group g1")]
    Group {
        /// The group
        name: String,
    },
}

pub(crate) fn space(client: &Client, output: &Output, args: SpaceArgs) -> Result<(), Failure> {
    match args.of {
        None | Some(Of::Pool) => show(client, output, "/space", pool_text),
        Some(Of::Volume { name }) => {
            show(client, output, &format!("/volumes/{}/space", segment(&name)), volume_text)
        }
        Some(Of::Group { name }) => {
            show(client, output, &format!("/groups/{}/space", segment(&name)), volume_text)
        }
    }
}

fn pool_text(space: &PoolSpace) -> String {
    let mut rows = vec![
        ("provisioned", size_text(space.provisioned_bytes)),
        ("written", size_text(space.written_bytes)),
        ("unique", size_text(space.unique_bytes)),
        ("  of one volume", size_text(space.own_bytes)),
        ("  shared", size_text(space.shared_bytes)),
        ("  being removed", size_text(space.removing_bytes)),
        ("  less copied", size_text(space.copied_bytes)),
        ("physical", size_text(space.physical_bytes)),
        ("held by snapshots", size_text(space.held_by_snapshots_bytes)),
        ("held by recycle bin", size_text(space.held_by_recycle_bin_bytes)),
        ("not destaged", size_text(space.buffered_bytes)),
        ("thin savings", saved(space.thin_savings_bytes, space.thin_ratio)),
        ("sharing savings", saved(space.sharing_savings_bytes, space.sharing_ratio)),
        ("  by deduplication", saved(space.deduplication_savings_bytes, space.deduplication_ratio)),
        ("compression savings", saved(space.compression_savings_bytes, space.compression_ratio)),
        ("data reduction", ratio_or_dash(space.data_reduction_ratio)),
        ("efficiency", ratio_or_dash(space.efficiency_ratio)),
        ("metadata", format!("{}, {:.2} %", size_text(space.metadata_bytes), space.metadata_percent)),
        ("usable", size_text(space.usable_bytes)),
        ("free", size_text(space.free_bytes)),
        ("spare", spare_text(&space.spare)),
    ];
    if space.lost_at_most_bytes > 0 {
        rows.push(("lost to damage", format!("at most {}", size_text(space.lost_at_most_bytes))));
    }
    rows.extend(transit(space.settled));
    pairs(rows)
}

fn volume_text(space: &VolumeSpace) -> String {
    let mut rows = vec![
        (if space.volumes.len() == 1 { "volume" } else { "volumes" }, space.volumes.join(", ")),
        ("provisioned", size_text(space.provisioned_bytes)),
        ("written", size_text(space.written_bytes)),
        ("  its own", size_text(space.own_bytes)),
        ("  shared", size_text(space.shared_bytes)),
        ("held by snapshots", size_text(space.held_by_snapshots_bytes)),
        ("reserved, not used", size_text(space.reserved_unused_bytes)),
        ("physical", size_text(space.physical_bytes)),
        ("thin savings", saved(space.thin_savings_bytes, space.thin_ratio)),
        ("deduplication", ratio_or_dash(space.deduplication_ratio)),
        ("compression", ratio_or_dash(space.compression_ratio)),
        ("data reduction", ratio_or_dash(space.data_reduction_ratio)),
        ("efficiency", ratio_or_dash(space.efficiency_ratio)),
        ("estimated from", format!("{} blocks", space.sampled_blocks)),
        (
            "a deletion frees",
            format!(
                "{} now, at most {} if everything that shares its blocks is deleted first",
                size_text(space.freed_min_bytes),
                size_text(space.freed_max_bytes)
            ),
        ),
    ];
    rows.extend(transit(space.settled));
    pairs(rows)
}

fn saved(bytes: u64, ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) => format!("{}, {}", size_text(bytes), ratio_text(ratio)),
        None => size_text(bytes),
    }
}

fn ratio_or_dash(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), ratio_text)
}

/// `3.2:1`.
fn ratio_text(ratio: f64) -> String {
    format!("{ratio:.1}:1")
}

fn transit(settled: bool) -> Option<(&'static str, String)> {
    let text = "space is being freed; what a deletion frees may include some of it";
    (!settled).then(|| ("note", text.to_owned()))
}
