//! `quoin schedule`: commands for snapshot schedules.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    report::{each, list},
    time::{Age, duration_text, parse_age, utc_text},
};
use clap::Subcommand;
use quoin_api::{Every, Rule, Schedule, ScheduleCreate, ScheduleUpdate};

/// Commands about schedules.
#[derive(Subcommand, Debug)]
pub enum ScheduleCommand {
    /// Create a schedule that takes snapshots of a volume or group and keeps a number of them
    #[command(
        group = clap::ArgGroup::new("of").required(true).args(["volume", "group"]),
        after_help = "The snapshots are named VOLUME.hourly-YYYYMMDD-HHMMSS and so on, in UTC, and carry the tags \
                      schedule=NAME and every=hourly. The schedule deletes the oldest snapshots beyond the number to keep, \
                      except those that are immutable, in use, or without one of the tags. Runs missed while the array \
                      was off are made up for by one snapshot.\n\nExamples:\n  \
                      quoin --data /srv/a schedule create db1 --group db1 --every hourly:24,daily:7\n  \
                      quoin --data /srv/a schedule create v1 --volume v1 --every daily:7,weekly:4 --at 02:30 --retain 7d"
    )]
    Create {
        /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-'
        name: String,
        /// The volume
        #[arg(long)]
        volume: Option<String>,
        /// The consistency group
        #[arg(long)]
        group: Option<String>,
        /// How often, and how many to keep: hourly:24, daily:7, weekly:4, or several separated by commas
        #[arg(long, value_name = "RULES", required = true, value_delimiter = ',', value_parser = parse_rule)]
        every: Vec<Rule>,
        /// Time of day in UTC; hourly snapshots use the minute only, weekly ones are taken on Sundays
        #[arg(long, value_name = "HH:MM", default_value = "00:00")]
        at: String,
        /// Make each snapshot immutable for this time
        #[arg(long, value_name = "TIME", value_parser = parse_age)]
        retain: Option<Age>,
    },
    /// List all schedules
    #[command(after_help = "Examples:\n  quoin --data /srv/a schedule list")]
    List,
    /// Show one schedule
    #[command(after_help = "Examples:\n  quoin --data /srv/a schedule show db1\n  \
                            quoin --data /srv/a volume list --tag schedule=db1    # its snapshots")]
    Show {
        /// The schedule
        name: String,
    },
    /// Take a snapshot now, as the schedule's first rule would
    #[command(after_help = "Examples:\n  quoin --data /srv/a schedule run db1")]
    Run {
        /// The schedule
        name: String,
    },
    /// Pause a schedule
    #[command(after_help = "Examples:\n  quoin --data /srv/a schedule pause db1")]
    Pause {
        /// The schedule
        name: String,
    },
    /// Resume a schedule; missed runs are not made up for
    #[command(after_help = "Examples:\n  quoin --data /srv/a schedule resume db1")]
    Resume {
        /// The schedule
        name: String,
    },
    /// Delete schedules; their snapshots stay
    #[command(after_help = "Examples:\n  quoin --data /srv/a schedule delete db1")]
    Delete {
        /// The schedules
        #[arg(id = "name", value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// Reads `hourly:24`.
fn parse_rule(text: &str) -> Result<Rule, String> {
    let wrong = || format!("{text:?} is not a rule; write hourly:24, daily:7 or weekly:4");
    let (every, keep) = text.split_once(':').ok_or_else(wrong)?;
    let every = Every::ALL.into_iter().find(|known| known.name() == every).ok_or_else(wrong)?;
    Ok(Rule { every, keep: keep.parse().map_err(|_| wrong())? })
}

/// Runs a command about schedules.
pub(crate) fn run(client: &Client, output: &Output, command: ScheduleCommand) -> Result<(), Failure> {
    let pause = |name: &str, paused: bool| -> Result<(), Failure> {
        let request = ScheduleUpdate { paused: Some(paused) };
        output.show(&client.patch::<Schedule>(&path(name), &request)?, one);
        Ok(())
    };
    match command {
        ScheduleCommand::Create { name, volume, group, every, at, retain } => {
            let retain_s = retain.map(Age::seconds);
            let request = ScheduleCreate { name, volume, group, rules: every, at, retain_s };
            output.show(&client.post::<Schedule>("/schedules", &request)?, one);
        }
        ScheduleCommand::List => list(client, output, "/schedules", many)?,
        ScheduleCommand::Show { name } => output.show(&client.get::<Schedule>(&path(&name))?, one),
        ScheduleCommand::Run { name } => {
            output.show(
                &client.post::<Schedule>(&format!("{}/run", path(&name)), &serde_json::json!({}))?,
                one,
            );
        }
        ScheduleCommand::Pause { name } => pause(&name, true)?,
        ScheduleCommand::Resume { name } => pause(&name, false)?,
        ScheduleCommand::Delete { names } => each(output, &names, |name| {
            client.delete(&path(name))?;
            output.say(&format!("schedule {name} deleted; its snapshots stay"));
            Ok(())
        })?,
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/schedules/{}", segment(name))
}

fn of(schedule: &Schedule) -> String {
    match (&schedule.volume, &schedule.group) {
        (Some(volume), _) => format!("volume {volume}"),
        (_, Some(group)) => format!("group {group}"),
        (None, None) => "deleted".to_owned(),
    }
}

fn rules(schedule: &Schedule) -> String {
    schedule.rules.iter().map(|rule| format!("{}:{}", rule.every, rule.keep)).collect::<Vec<_>>().join(",")
}

fn moment(ms: Option<u64>, without: &str) -> String {
    ms.map_or_else(|| without.to_owned(), utc_text)
}

fn next(schedule: &Schedule) -> String {
    moment(schedule.next_run_ms, "paused")
}

fn many(schedules: &[Schedule]) -> String {
    let row = |s: &Schedule| {
        let (last, next) = (moment(s.last_run_ms, "never"), next(s));
        vec![s.name.clone(), of(s), rules(s), s.at.clone(), s.snapshots.to_string(), last, next]
    };
    table(
        &["name", "of", "every", "at (utc)", "snapshots", "last", "next"],
        schedules.iter().map(row).collect(),
        "no schedules; create one: quoin schedule create NAME --volume VOLUME --every hourly:24,daily:7",
    )
}

fn one(schedule: &Schedule) -> String {
    let retain = schedule.retain_s.map_or_else(|| "-".to_owned(), |s| format!("for {}", duration_text(s)));
    pairs(vec![
        ("schedule", schedule.name.clone()),
        ("of", of(schedule)),
        ("every", rules(schedule)),
        ("at", format!("{} UTC", schedule.at)),
        ("immutable", retain),
        ("snapshots", schedule.snapshots.to_string()),
        ("created", utc_text(schedule.created_ms)),
        ("last", moment(schedule.last_run_ms, "never")),
        ("next", next(schedule)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        assert_eq!(parse_rule("hourly:24"), Ok(Rule { every: Every::Hourly, keep: 24 }));
        for bad in ["hourly", "yearly:1", "daily:x", ":1", ""] {
            assert!(parse_rule(bad).unwrap_err().contains("weekly:4"), "{bad}");
        }
    }
}
