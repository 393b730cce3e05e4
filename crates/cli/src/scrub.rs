//! `quoin scrub`: commands for scrubs, which verify everything on the drives.

use crate::{
    Failure, Output, Size,
    client::Client,
    output::{pairs, table},
    report::show,
    size::parse_rate,
    size_text,
    time::{duration_text, utc_text},
};
use clap::Subcommand;
use quoin_api::{
    DriveRepairs, ScrubFindings, ScrubProgress, ScrubResult, ScrubSchedule, ScrubStatus, ScrubUpdate,
    TimeOfDay,
};

/// Commands for scrubs.
#[derive(Subcommand, Debug)]
pub enum ScrubCommand {
    /// Start a scrub
    #[command(
        after_help = "A scrub reads all data and metadata on the drives in the background and verifies their checksums. \
                      It respects the rate limit and gives way to host I/O. It resumes after a restart.\n\nExamples:\n  quoin --data /srv/a scrub start\n  \
                      quoin --data /srv/a scrub start && quoin --data /srv/a scrub status"
    )]
    Start,
    /// Stop the running scrub
    #[command(after_help = "Examples:\n  quoin --data /srv/a scrub stop")]
    Stop,
    /// Show settings, progress, the last result and the list of damage
    #[command(
        after_help = "A damaged range is listed until it is overwritten or unmapped. Reads of it fail with a medium \
                      error; all other data is unaffected. Restore it from a snapshot or a backup.\n\nExamples:\n  \
                      quoin --data /srv/a scrub status\n  \
                      quoin --data /srv/a scrub status -o json | jq .damaged"
    )]
    Status,
    /// Set the schedule and the rate limit of scrubs
    #[command(
        group = clap::ArgGroup::new("what").required(true).multiple(true).args(["schedule", "at", "rate"]),
        after_help = "Examples:\n  quoin --data /srv/a scrub set --schedule weekly --at 02:00   # Sundays\n  \
                      quoin --data /srv/a scrub set --schedule daily --at 22:30 --rate 100M\n  \
                      quoin --data /srv/a scrub set --schedule off"
    )]
    Set {
        /// How often a scrub starts: weekly (on Sundays), daily or off
        #[arg(long, value_name = "WHEN", value_parser = parse_schedule)]
        schedule: Option<ScrubSchedule>,
        /// Time of day in UTC
        #[arg(long, value_name = "HH:MM", value_parser = parse_time)]
        at: Option<TimeOfDay>,
        /// Read at most this much per second, at least 64K; 0 for no limit
        #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
        rate: Option<Size>,
    },
}

fn parse_schedule(text: &str) -> Result<ScrubSchedule, String> {
    let all = [ScrubSchedule::Off, ScrubSchedule::Daily, ScrubSchedule::Weekly];
    let found = all.into_iter().find(|schedule| schedule.to_string() == text);
    found.ok_or_else(|| format!("{text:?} is not a schedule; write weekly, daily or off"))
}

fn parse_time(text: &str) -> Result<TimeOfDay, String> {
    text.parse()
}

pub(crate) fn scrub(client: &Client, output: &Output, command: ScrubCommand) -> Result<(), Failure> {
    let nothing = serde_json::json!({});
    let status: ScrubStatus = match command {
        ScrubCommand::Status => return show(client, output, "/scrub", status_text),
        ScrubCommand::Start => client.post("/scrub/start", &nothing)?,
        ScrubCommand::Stop => client.post("/scrub/stop", &nothing)?,
        ScrubCommand::Set { schedule, at, rate } => {
            let update = ScrubUpdate { schedule, at, rate_bytes_s: rate.map(|size| size.0) };
            client.patch("/scrub", &update)?
        }
    };
    output.show(&status, status_text);
    Ok(())
}

fn status_text(status: &ScrubStatus) -> String {
    let schedule = match status.schedule {
        ScrubSchedule::Off => "off".to_owned(),
        ScrubSchedule::Daily => format!("daily at {} UTC", status.at),
        ScrubSchedule::Weekly => format!("Sundays at {} UTC", status.at),
    };
    let rate = match status.rate_bytes_s {
        0 => "unlimited".to_owned(),
        rate => format!("{}/s at most", size_text(rate)),
    };
    let mut rows = vec![("schedule", schedule), ("rate", rate)];
    rows.extend(status.next_ms.map(|next| ("next", utc_text(next))));
    match &status.running {
        Some(running) => rows.push(("running", progress(running))),
        None => rows.push(("running", "no".to_owned())),
    }
    match &status.last {
        Some(last) => rows.push(("last", result(last))),
        None => rows.push(("last", "none yet".to_owned())),
    }
    let mut parts = vec![pairs(rows)];
    parts
        .extend(status.last.as_ref().filter(|last| !last.notes.is_empty()).map(|last| last.notes.join("\n")));
    let row = |damaged: &quoin_api::DamagedRange| {
        vec![
            damaged.volume.clone(),
            damaged.offset_bytes.to_string(),
            damaged.length_bytes.to_string(),
            utc_text(damaged.found_ms),
            damaged.reason.clone(),
        ]
    };
    let header = ["damaged volume", "first byte", "bytes", "found", "what"];
    parts.push(table(&header, status.damaged.iter().map(row).collect(), "no known damage"));
    if status.more_damaged > 0 {
        parts.push(format!("and {} more ranges", status.more_damaged));
    }
    parts.join("\n\n")
}

fn progress(running: &ScrubProgress) -> String {
    let left = running.remaining_s.map_or_else(String::new, |s| format!(", {} left", duration_text(s)));
    format!(
        "{:.1} %, {} of about {}{left}, {}",
        running.percent,
        size_text(running.verified_bytes),
        size_text(running.total_bytes),
        found(&running.found)
    )
}

fn result(last: &ScrubResult) -> String {
    let took = duration_text(last.ended_ms.saturating_sub(last.started_ms) / 1000);
    let why = last.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    format!(
        "{}{why} {} after {took}, {} verified, {}",
        last.outcome,
        utc_text(last.ended_ms),
        size_text(last.verified_bytes),
        found(&last.found) + &by_drive(&last.repairs_by_drive)
    )
}

fn by_drive(repairs: &[DriveRepairs]) -> String {
    let of = |of: &DriveRepairs| format!("{} {}", of.drive, of.repairs);
    let all: Vec<_> = repairs.iter().map(of).collect();
    if all.is_empty() { String::new() } else { format!("; repairs by drive: {}", all.join(", ")) }
}

fn found(found: &ScrubFindings) -> String {
    let parts = [
        (found.damaged_blocks, "blocks damaged"),
        (found.damaged_pages, "metadata pages damaged"),
        (found.repaired_pages, "of them rewritten"),
        (found.damaged_rows, "row heads damaged"),
        (found.failed_reads, "reads failed"),
        (found.repairs.data, "ranges of data repaired from parity"),
        (found.repairs.copies, "copies repaired"),
        (found.repairs.parity, "ranges of parity repaired"),
    ];
    let parts: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if parts.is_empty() { "nothing damaged".to_owned() } else { parts.join(", ") }
}
