//! `quoin space`: how the pool's space is used.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    pool::spare_text,
    report::show,
    size_text,
    time::{Age, duration_text, parse_age, utc_text},
};
use clap::{Args, Subcommand};
use quoin_api::{PoolSpace, SpaceForecast, SpaceSample, VolumeSpace};

pub(crate) const EXAMPLES: &str = "Written is what hosts wrote and did not unmap; unique counts each block of it once; \
                                   physical is what these blocks take, compressed or not. Acknowledged data that is not destaged yet is counted separately; it is \
                                   destaged within seconds.\n\nExamples:\n  \
                                   quoin --data /srv/a space\n  \
                                   quoin --data /srv/a space volume v1     # and what deleting it frees\n  \
                                   quoin --data /srv/a space group g1\n  \
                                   quoin --data /srv/a space history       # and how long the free space lasts\n  \
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
    /// Show how the use of the pool's space grew, and how long the free space lasts
    #[command(
        after_help = "The array takes a sample every hour. It keeps those of 40 days, and of the days before that, up to three years back, \
                      the last of each day. The forecast goes by the last 30 days.\n\nExamples:\n  quoin --data /srv/a space history\n  \
                      quoin --data /srv/a space history --since 2d --hourly\n  quoin --data /srv/a space history --since 365d -o csv"
    )]
    History {
        /// How far back: 12h, 30d
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_age)]
        since: Age,
        /// Show each hour, instead of the last hour of each day
        #[arg(long)]
        hourly: bool,
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
        Some(Of::History { since, hourly }) => history(client, output, since, hourly),
        Some(Of::Group { name }) => {
            show(client, output, &format!("/groups/{}/space", segment(&name)), volume_text)
        }
    }
}

fn history(client: &Client, output: &Output, since: Age, hourly: bool) -> Result<(), Failure> {
    let since_ms = since.ago_ms();
    let samples: Vec<SpaceSample> =
        client.get(&format!("/space/history?since_ms={since_ms}&hourly={hourly}"))?;
    let forecast: Option<SpaceForecast> =
        output.is_for_people().then(|| client.get("/space/forecast")).transpose()?;
    output.list(&samples, "", |samples| {
        let told = forecast.as_ref().map(forecast_text).unwrap_or_default();
        format!("{}\n\n{told}", samples_table(samples))
    });
    Ok(())
}

fn samples_table(samples: &[SpaceSample]) -> String {
    let row = |sample: &SpaceSample| {
        vec![
            utc_text(sample.at_ms),
            size_text(sample.provisioned_bytes),
            size_text(sample.written_bytes),
            size_text(sample.unique_bytes),
            size_text(sample.physical_bytes),
            size_text(sample.free_bytes),
            ratio_or_dash(sample.data_reduction_ratio),
            ratio_or_dash(sample.efficiency_ratio),
        ]
    };
    let head = ["TIME", "PROVISIONED", "WRITTEN", "UNIQUE", "PHYSICAL", "FREE", "REDUCTION", "EFFICIENCY"];
    table(&head, samples.iter().map(row).collect(), "no samples of that time")
}

fn forecast_text(forecast: &SpaceForecast) -> String {
    let over = duration_text(forecast.observed_s);
    let free = size_text(forecast.free_bytes);
    match (forecast.growth_bytes_day, forecast.full_in_s) {
        (None, _) => {
            format!("no forecast yet: the array has watched for {over}, and a forecast takes a day")
        }
        (Some(growth), Some(full_in_s)) => format!(
            "use grew by {} a day over {over}; if it goes on, the {free} that are free last {}",
            size_text(growth as u64),
            duration_text(full_in_s)
        ),
        (Some(growth), None) if growth <= -1.0 => {
            format!("use declined by {} a day over {over}; {free} are free", size_text(-growth as u64))
        }
        (Some(_), None) => format!("use did not grow over {over}; {free} are free"),
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
