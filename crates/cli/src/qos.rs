//! `quoin qos`: limits of IOPS and bandwidth of volumes, groups and policies.

use crate::{
    Failure, Output, Size,
    client::{Client, segment},
    output::{pairs, table},
    parse_size,
    report::list,
    size_text,
    time::{Age, parse_age},
};
use clap::Args;
use quoin_api::{DEFAULT_BURST_MS, Qos, QosSet};

pub(crate) const EXAMPLES: &str = "Without a limit the command lists all limits, or shows those of the volume, group or \
                                   policy.\n\n\
                                   A policy limits each of its volumes on its own; a group limits its volumes together, \
                                   and those that ask for more have equal parts. A volume keeps to all limits that \
                                   concern it. Limits hold at once. They count reads and writes of hosts: a request \
                                   that has to wait is not begun, and flushes, reservations and what the array does by \
                                   itself are not counted.\n\nExamples:\n  \
                                   quoin --data /srv/a qos\n  \
                                   quoin --data /srv/a qos --volume v1 --iops 5000 --bandwidth 200M\n  \
                                   quoin --data /srv/a qos --volume v1 --iops 1000 --burst 30s\n  \
                                   quoin --data /srv/a qos --group db1 --bandwidth 500M\n  \
                                   quoin --data /srv/a qos --policy bronze --iops 500\n  \
                                   quoin --data /srv/a qos --volume v1\n  \
                                   quoin --data /srv/a qos --volume v1 --off";

/// Options of `quoin qos`; without a limit the command shows limits.
#[derive(Args, Debug)]
#[group(skip)]
pub struct QosArgs {
    /// The limits of this volume
    #[arg(long, group = "of")]
    volume: Option<String>,
    /// The limits of the volumes of this consistency group, together
    #[arg(long, group = "of")]
    group: Option<String>,
    /// The limits of each volume that has this policy
    #[arg(long, group = "of")]
    policy: Option<String>,
    /// The most requests a second, of whatever size, from 10 on
    #[arg(long, requires = "of", conflicts_with = "off")]
    iops: Option<u64>,
    /// The most bytes a second, reads and writes together, from 4M on
    #[arg(long, value_parser = parse_size, requires = "of", conflicts_with = "off")]
    bandwidth: Option<Size>,
    /// For how long what is not used is saved up, to be used at once later, such as 10s; up to 1h [default: 100 ms]
    #[arg(long, value_name = "TIME", value_parser = parse_age, requires = "of", conflicts_with = "off")]
    burst: Option<Age>,
    /// No limits
    #[arg(long, requires = "of")]
    off: bool,
}

/// Sets or shows limits.
pub(crate) fn run(client: &Client, output: &Output, args: &QosArgs) -> Result<(), Failure> {
    let path = match (&args.volume, &args.group, &args.policy) {
        (Some(volume), ..) => format!("/volumes/{}/qos", segment(volume)),
        (_, Some(group), _) => format!("/groups/{}/qos", segment(group)),
        (.., Some(policy)) => format!("/policies/{}/qos", segment(policy)),
        (None, None, None) => return list(client, output, "/qos", many),
    };
    let (iops, bytes_per_s) = (args.iops, args.bandwidth.map(|size| size.0));
    if args.off {
        client.delete(&path)?;
    } else if iops.is_some() || bytes_per_s.is_some() || args.burst.is_some() {
        let burst_ms = args.burst.map_or(DEFAULT_BURST_MS, |burst| burst.seconds().saturating_mul(1000));
        client.put::<Qos>(&path, &QosSet { iops, bytes_per_s, burst_ms })?;
    }
    output.show(&client.get::<Qos>(&path)?, one);
    Ok(())
}

fn of(qos: &Qos) -> String {
    format!("{} {}", qos.scope, qos.name)
}

fn iops(qos: &Qos) -> String {
    qos.iops.map_or_else(|| "any".to_owned(), |iops| iops.to_string())
}

fn bandwidth(qos: &Qos) -> String {
    qos.bytes_per_s.map_or_else(|| "any".to_owned(), |bytes| format!("{}/s", size_text(bytes)))
}

fn burst(qos: &Qos) -> String {
    match qos.burst_ms {
        None => "-".to_owned(),
        Some(ms) if ms % 1000 == 0 => format!("{} s", ms / 1000),
        Some(ms) => format!("{ms} ms"),
    }
}

fn delay(qos: &Qos) -> String {
    qos.delay_us.map_or_else(|| "-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1000.0))
}

fn many(all: &[Qos]) -> String {
    let row = |q: &Qos| {
        let (waiting, delayed) = (q.waiting.to_string(), q.delayed.to_string());
        vec![of(q), iops(q), bandwidth(q), burst(q), waiting, delayed, delay(q)]
    };
    table(
        &["of", "iops", "bandwidth", "burst", "waiting", "delayed", "average delay"],
        all.iter().map(row).collect(),
        "no limits",
    )
}

fn one(qos: &Qos) -> String {
    let mut lines =
        vec![("of", of(qos)), ("iops", iops(qos)), ("bandwidth", bandwidth(qos)), ("burst", burst(qos))];
    if !qos.others.is_empty() {
        lines.push(("limited by", qos.others.join(", ")));
    }
    lines.push(("waiting", qos.waiting.to_string()));
    lines.push(("delayed", qos.delayed.to_string()));
    lines.push(("average delay", delay(qos)));
    pairs(lines)
}
