//! `quoin job`: work in the background, listed, followed and cancelled.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    report::{list, show},
    size_text,
    time::{duration_text, utc_text},
};
use clap::Subcommand;
use quoin_api::{Job, JobState, ProblemKind};
use std::{thread, time::Duration};

/// How often a job that is watched is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Commands about jobs.
#[derive(Subcommand, Debug)]
pub enum JobCommand {
    /// List running jobs and the last ones that ended
    #[command(
        after_help = "Jobs are range copies, scrubs, volumes that shrink, are converted or reduced, space that is being reclaimed, and \
                      drives that are evacuated, rebuilt or balanced. All but copies and reductions resume after a restart of the array. A \
                      copy that a restart interrupts fails; a reduction is forgotten, and what it did stays.\n\nExamples:\n  quoin --data /srv/a job list\n  \
                      quoin --data /srv/a job list --state running\n  quoin --data /srv/a job list -o json"
    )]
    List {
        /// Only this kind: copy, scrub, shrink, reclaim, evacuate, rebuild, balance, convert or reduce
        #[arg(long, value_parser = ["copy", "scrub", "shrink", "reclaim", "evacuate", "rebuild", "balance", "convert", "reduce"])]
        kind: Option<String>,
        /// Only this state: running, done, failed or cancelled
        #[arg(long, value_parser = ["running", "done", "failed", "cancelled"])]
        state: Option<String>,
    },
    /// Show one job
    #[command(after_help = "Examples:\n  quoin --data /srv/a job show copy-7")]
    Show {
        /// The job
        #[arg(id = "job", value_name = "ID")]
        id: String,
    },
    /// Follow a job to its end
    #[command(
        after_help = "Prints a line whenever the job has progressed. The exit code is 1 if the job fails or is \
                            cancelled.\n\nExamples:\n  quoin --data /srv/a job watch copy-7"
    )]
    Watch {
        /// The job
        #[arg(id = "job", value_name = "ID")]
        id: String,
    },
    /// Cancel a job
    #[command(
        after_help = "Copies, scrubs, evacuations, balancing and reductions can be cancelled; what they have done so far stays.\n\nExamples:\n  \
                            quoin --data /srv/a job cancel copy-7"
    )]
    Cancel {
        /// The job
        #[arg(id = "job", value_name = "ID")]
        id: String,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::List { kind, state } => {
            let filters =
                [kind.map(|kind| format!("kind={kind}")), state.map(|state| format!("state={state}"))];
            let filters: Vec<_> = filters.into_iter().flatten().collect();
            let separator = if filters.is_empty() { "" } else { "?" };
            list(client, output, &format!("/jobs{separator}{}", filters.join("&")), many)
        }
        JobCommand::Show { id } => show(client, output, &path(&id), one),
        JobCommand::Watch { id } => watch(client, output, &id),
        JobCommand::Cancel { id } => {
            client.delete(&path(&id))?;
            show(client, output, &path(&id), one)
        }
    }
}

fn path(id: &str) -> String {
    format!("/jobs/{}", segment(id))
}

/// Follows a job. One that shrinks or reclaims is no longer there when it is done.
fn watch(client: &Client, output: &Output, id: &str) -> Result<(), Failure> {
    let job = client.get(&path(id))?;
    let Some(job) = follow(client, output, job)? else { return Ok(()) };
    // People have seen how it went; programs get the job itself.
    if !output.is_for_people() {
        output.show(&job, one);
    }
    completed(job)
}

/// Follows a job to its end, and tells how far it is. `None`: it is no longer there, and done; one that a restart ends may not
/// be done, and is looked for in vain.
pub(crate) fn follow(client: &Client, output: &Output, mut job: Job) -> Result<Option<Job>, Failure> {
    let id = job.id.clone();
    let mut told = String::new();
    loop {
        let now = progress(&job);
        if now != told {
            output.say(&now);
            told = now;
        }
        if job.state.is_ended() {
            return Ok(Some(job));
        }
        thread::sleep(WATCH_EVERY);
        job = match client.get(&path(&id)) {
            Ok(job) => job,
            Err(failure)
                if failure.problem.status == ProblemKind::NotFound.status() && job.survives_restart =>
            {
                output.say(&format!("{id}: done"));
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
    }
}

/// Fails unless the job was completed: the exit code says so.
pub(crate) fn completed(job: Job) -> Result<(), Failure> {
    match job.state {
        JobState::Failed | JobState::Cancelled => {
            let id = job.id;
            let why = job.error.unwrap_or_else(|| format!("job {id} was cancelled"));
            Err(Failure::new(
                "job not completed",
                format!("job {id}"),
                why,
                "start it again if it is still wanted",
            ))
        }
        _ => Ok(()),
    }
}

/// `copy-7: running, 25.0 %, 1.0 GiB of 4.0 GiB, 12s left`.
fn progress(job: &Job) -> String {
    let mut parts = vec![job.state.to_string()];
    parts.extend(amount(job));
    parts.extend(job.remaining_s.map(|seconds| format!("{} left", duration_text(seconds))));
    format!("{}: {}", job.id, parts.join(", "))
}

fn amount(job: &Job) -> Vec<String> {
    let percent = job.percent.map(|percent| format!("{percent:.1} %"));
    let bytes = match (job.done_bytes, job.total_bytes) {
        (Some(done), Some(total)) => Some(format!("{} of {}", size_text(done), size_text(total))),
        (Some(done), None) => Some(size_text(done)),
        _ => None,
    };
    percent.into_iter().chain(bytes).collect()
}

fn optional(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

pub(crate) fn one(job: &Job) -> String {
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let mut rows = vec![
        ("job", job.id.clone()),
        ("kind", job.kind.to_string()),
        ("object", job.object.clone()),
        ("state", job.state.to_string()),
        ("progress", optional(Some(amount(job).join(", ")).filter(|text| !text.is_empty()))),
        ("started", optional(job.started_ms.map(utc_text))),
        ("ended", optional(job.ended_ms.map(utc_text))),
        ("can be cancelled", yes(job.cancellable)),
        ("survives a restart", yes(job.survives_restart)),
    ];
    rows.extend(job.bytes_per_s.map(|rate| ("rate", format!("{}/s", size_text(rate)))));
    rows.extend(job.remaining_s.map(|seconds| ("left", duration_text(seconds))));
    rows.extend(job.error.clone().map(|why| ("error", why)));
    pairs(rows)
}

fn many(jobs: &[Job]) -> String {
    let row = |job: &Job| {
        vec![
            job.id.clone(),
            job.kind.to_string(),
            job.object.clone(),
            job.state.to_string(),
            optional(Some(amount(job).join(", ")).filter(|text| !text.is_empty())),
            optional(job.remaining_s.map(duration_text)),
            optional(job.started_ms.map(utc_text)),
            optional(job.ended_ms.map(utc_text)),
        ]
    };
    let header = ["job", "kind", "object", "state", "progress", "left", "started", "ended"];
    table(&header, jobs.iter().map(row).collect(), "no jobs")
}
