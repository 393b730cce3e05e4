//! `quoin pool`: settings of the pool that hold at once and stay.

use crate::{
    Failure, Output, Size,
    client::Client,
    output::{pairs, table},
    parse_size,
    report::show,
    size_text,
};
use clap::Subcommand;
use quoin_api::{DriveExpansion, PoolExpand, PoolExpansion, PoolSettings, PoolUpdate, Spare};

/// Commands about the pool's settings.
#[derive(Subcommand, Debug)]
pub enum PoolCommand {
    /// Show the settings of the pool
    #[command(after_help = "Examples:\n  quoin --data /srv/a pool show\n  \
                            quoin --data /srv/a pool show -o json | jq .warning_percent")]
    Show,
    /// Set how full the pool is before it tells, what it keeps free, and how many errors of a drive are too many
    #[command(
        group = clap::ArgGroup::new("what").required(true).multiple(true).args(["notice", "warning", "critical", "evict_errors", "spare"]),
        after_help = "A threshold that is reached is told of by an event, and to hosts that see thin volumes. It is left two \
                      percent below. With spare fault domains, hosts leave so much space free that what the so many largest \
                      ones hold can be made again on the others. The settings hold at once, stay, and go before those of \
                      quoin.toml.\n\nExamples:\n  \
                      quoin --data /srv/a pool set --notice 50% --warning 75% --critical 90%\n  \
                      quoin --data /srv/a pool set --notice off\n  \
                      quoin --data /srv/a pool set --evict-errors 50\n  \
                      quoin --data /srv/a pool set --spare 1"
    )]
    Set {
        /// From here on a notice is in order: a percentage of the space for host data, or off
        #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
        notice: Option<u8>,
        /// From here on a warning is in order
        #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
        warning: Option<u8>,
        /// From here on it is critical; off: nothing tells of a full pool before a write is refused
        #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
        critical: Option<u8>,
        /// Evacuate a drive that had so many errors and repairs within an hour, of a minute at most four: 1 to 240, or off
        #[arg(long, value_name = "COUNT", value_parser = parse_errors)]
        evict_errors: Option<u32>,
        /// Keep space free for the loss of so many fault domains, the largest ones: 1 to 8, or off
        #[arg(long, value_name = "DOMAINS", value_parser = parse_spare)]
        spare: Option<u8>,
    },
    /// Grow the pool with its drives while it serves
    #[command(
        group = clap::ArgGroup::new("how").required(true).args(["by", "to_devices"]),
        after_help = "With --by, the files of drives are made longer: each by a percentage of its size, or all together by a size, \
                      each by its share. With --to-devices, the pool takes what devices and files have by now that were enlarged \
                      from outside. The new room can be used at once, and what was interrupted is completed by --to-devices. \
                      Refused if a drive is smaller than before, if there is nothing to grow by or no room for files, and while \
                      drives are away, unless the others are named.\n\nExamples:\n  \
                      quoin --data /srv/a pool expand --by 20% --dry-run\n  \
                      quoin --data /srv/a pool expand --by 500G\n  \
                      lvextend -L +1T vg0/q1; quoin --data /srv/a pool expand --to-devices --drive /dev/vg0/q1\n  \
                      quoin --data /srv/a pool expand --to-devices -o json | jq .usable_after_bytes"
    )]
    Expand {
        /// By how much: a percentage of each drive, or a size for all of them together; for drives that are files
        #[arg(long, value_name = "PERCENT|SIZE", value_parser = parse_growth)]
        by: Option<GrowBy>,
        /// Take what devices and files have by now
        #[arg(long)]
        to_devices: bool,
        /// Only this drive: its path in quoin drive list, or the end of that path; repeatable [default: all that hold data]
        #[arg(long, value_name = "DRIVE")]
        drive: Vec<String>,
        /// Show what it would come to, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// By how much drives grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowBy {
    /// Each by so many percent of its size.
    Percent(u32),
    /// All together by so many bytes.
    Bytes(u64),
}

/// Reads a percentage with % behind it, or a size.
fn parse_growth(text: &str) -> Result<GrowBy, String> {
    let wrong = || format!("{text:?} is no growth; write a percentage such as 20%, or a size such as 500G");
    match text.strip_suffix('%') {
        Some(number) => {
            let percent = number.parse().ok().filter(|percent| (1..=10_000).contains(percent));
            percent.map(GrowBy::Percent).ok_or_else(wrong)
        }
        None => match parse_size(text) {
            Ok(Size(0)) | Err(_) => Err(wrong()),
            Ok(Size(bytes)) => Ok(GrowBy::Bytes(bytes)),
        },
    }
}

/// Reads a percentage from 1 to 100, perhaps with % behind it; 0 for `off`.
fn parse_percent(text: &str) -> Result<u8, String> {
    if text == "off" {
        return Ok(0);
    }
    let number = text.strip_suffix('%').unwrap_or(text);
    let percent = number.parse().ok().filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is no threshold; write a percentage from 1% to 100%, or off"))
}

/// Reads a count from 1 to 240; 0 for `off`.
fn parse_errors(text: &str) -> Result<u32, String> {
    if text == "off" {
        return Ok(0);
    }
    let count = text.parse().ok().filter(|count| (1..=240).contains(count));
    count.ok_or_else(|| format!("{text:?} is no count of errors; write 1 to 240, or off"))
}

/// Reads a count of fault domains from 1 to 8; 0 for `off`.
///
/// # Errors
/// What may be written instead.
pub fn parse_spare(text: &str) -> Result<u8, String> {
    if matches!(text, "off" | "0") {
        return Ok(0);
    }
    let count = text.parse().ok().filter(|count| (1..=8).contains(count));
    count.ok_or_else(|| format!("{text:?} is no count of spare fault domains; write 1 to 8, or off"))
}

pub(crate) fn run(client: &Client, output: &Output, command: PoolCommand) -> Result<(), Failure> {
    match command {
        PoolCommand::Show => show(client, output, "/pool", settings),
        PoolCommand::Set { notice, warning, critical, evict_errors, spare } => {
            let update = PoolUpdate {
                notice_percent: notice,
                warning_percent: warning,
                critical_percent: critical,
                evict_errors,
                spare_domains: spare,
            };
            let settings: PoolSettings = client.patch("/pool", &update)?;
            output.show(&settings, self::settings);
            Ok(())
        }
        PoolCommand::Expand { by, to_devices: _, drive, dry_run } => {
            let (percent, bytes) = match by {
                Some(GrowBy::Percent(percent)) => (Some(percent), None),
                Some(GrowBy::Bytes(bytes)) => (None, Some(bytes)),
                None => (None, None),
            };
            let request = PoolExpand { percent, bytes, drives: drive, dry_run };
            let expansion: PoolExpansion = client.post("/pool/expand", &request)?;
            output.show(&expansion, self::expansion);
            Ok(())
        }
    }
}

fn expansion(expansion: &PoolExpansion) -> String {
    let row = |drive: &DriveExpansion| {
        vec![
            drive.path.clone(),
            size_text(drive.size_before_bytes),
            size_text(drive.size_after_bytes),
            format!("{} -> {}", drive.slabs_before, drive.slabs_after),
            format!("{} of {}", drive.grant_pages, drive.most_grant_pages),
        ]
    };
    let rows = expansion.drives.iter().map(row).collect();
    let drives = table(&["drive", "before", "after", "slabs", "grant pages"], rows, "no drive");
    let (done, about) = if expansion.dry_run {
        ("nothing was changed; growing so would give", "about ")
    } else {
        ("the pool has grown:", "")
    };
    format!(
        "{drives}\n{done} {about}{} for host data instead of {}, laid out as {}",
        size_text(expansion.usable_after_bytes),
        size_text(expansion.usable_before_bytes),
        expansion.layout
    )
}

fn settings(settings: &PoolSettings) -> String {
    let percent = |percent: u8| if percent == 0 { "off".to_owned() } else { format!("{percent} %") };
    pairs(vec![
        ("notice", percent(settings.notice_percent)),
        ("warning", percent(settings.warning_percent)),
        ("critical", percent(settings.critical_percent)),
        (
            "evict errors",
            match settings.evict_errors {
                0 => "off".to_owned(),
                errors => format!("{errors} within an hour"),
            },
        ),
        ("spare", spare_text(&settings.spare)),
    ])
}

/// What is kept free for the loss of drives.
pub(crate) fn spare_text(spare: &Spare) -> String {
    let Spare { domains, kept_domains, used_domains, bytes } = *spare;
    if domains == 0 {
        return "off".to_owned();
    }
    let plural = if domains == 1 { "" } else { "s" };
    let mut text = format!("{domains} fault domain{plural}");
    if used_domains > 0 {
        text += &format!(", {used_domains} in use: drives failed, are absent or leave");
    }
    if kept_domains > used_domains {
        text += &format!(", {} kept free", size_text(bytes));
    }
    if kept_domains < domains {
        text += &format!(", {} NOT KEPT: too little is free; add drives", domains - kept_domains);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_spare_is_said_in_a_line() {
        let text = |domains, kept_domains, used_domains| {
            spare_text(&Spare { domains, kept_domains, used_domains, bytes: 3 << 30 })
        };
        assert_eq!(
            (text(0, 0, 0), text(1, 1, 0)),
            ("off".into(), "1 fault domain, 3.0 GiB kept free".into())
        );
        assert_eq!(text(1, 1, 1), "1 fault domain, 1 in use: drives failed, are absent or leave");
        assert_eq!(
            text(2, 1, 0),
            "2 fault domains, 3.0 GiB kept free, 1 NOT KEPT: too little is free; add drives"
        );
    }

    #[test]
    fn growth_is_a_percentage_or_a_size() {
        assert_eq!(
            ["20%", "10000%", "500G", "1.5K"].map(parse_growth),
            [
                Ok(GrowBy::Percent(20)),
                Ok(GrowBy::Percent(10_000)),
                Ok(GrowBy::Bytes(500 << 30)),
                Ok(GrowBy::Bytes(1536))
            ]
        );
        for text in ["0%", "10001%", "-5%", "0", "much", "20 percent", "%"] {
            assert!(parse_growth(text).is_err_and(|why| why.contains("500G")), "{text}");
        }
    }

    #[test]
    fn what_growing_comes_to_is_a_table_and_a_sentence() {
        let drive = DriveExpansion {
            path: "/srv/a/drives/drive-1".into(),
            number: 0,
            lengthens_file: true,
            size_before_bytes: 4 << 30,
            size_after_bytes: 6 << 30,
            slabs_before: 1023,
            slabs_after: 1535,
            grant_pages: 1,
            most_grant_pages: 96,
        };
        let (before, after) = (3 << 30, 5 << 30);
        let mut told = PoolExpansion {
            dry_run: true,
            drives: vec![drive],
            layout: "mirror".into(),
            usable_before_bytes: before,
            usable_after_bytes: after,
        };
        let text = expansion(&told);
        assert!(text.contains("1023 -> 1535") && text.contains("1 of 96"), "{text}");
        assert!(text.contains("nothing was changed; growing so would give about 5.0 GiB"), "{text}");
        told.dry_run = false;
        assert!(
            expansion(&told).ends_with(
                "the pool has grown: 5.0 GiB for host data instead of 3.0 GiB, laid out as mirror"
            )
        );
    }

    #[test]
    fn thresholds_are_percents_or_off() {
        assert_eq!(
            ["60%", "1", "100 %".trim_end_matches(" %"), "off"].map(parse_percent),
            [Ok(60), Ok(1), Ok(100), Ok(0)]
        );
        for text in ["0", "101%", "-1", "half", "%"] {
            assert!(parse_percent(text).is_err_and(|why| why.contains("1% to 100%")), "{text}");
        }
    }
}
