//! `quoin pool`: settings of the pool that hold at once and stay.

use crate::{Failure, Output, client::Client, output::pairs, report::show, size_text};
use clap::Subcommand;
use quoin_api::{PoolSettings, PoolUpdate, Spare};

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
    }
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
