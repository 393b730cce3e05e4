//! `quoin check`: walks everything on the drives of an array that is not running.

use crate::{
    bay::{OpenedDisks, PathBay},
    data::DataDir,
};
use quoin_array::check_catalog;
use quoin_base::VolumeId;
use quoin_cli::{Failure, Global, Output};
use quoin_config::Config;
use quoin_drive::{DriveError, DriveWatch, Patience, inspect_set};
use quoin_pool::{CheckReport, PoolSpace, check};
use quoin_volume::{VOLUME_OBJECT, hidden_volumes};
use quoin_world::{Disk, Thread};
use quoin_world_linux::{LinuxWorld, block_on};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub(crate) const EXAMPLES: &str = "The array must not be running. Exit code 0 means no problems, 1 means problems or \
                                   that the check could not run.\n\nExamples:\n  \
                                   quoin check --data /srv/a\n  quoin check --data /srv/a -o json";

pub(crate) fn run(global: &Global) -> Result<(), Failure> {
    let data = DataDir::of(global)?;
    let config = data.read_config()?;
    let report = walk(&data, &config)?;
    let output = Output { format: global.output, headers: !global.no_headers };
    output.show(&Checked::from(&report), Checked::text);
    match report.problems.len() {
        0 => Ok(()),
        count => Err(Failure::new(
            "check failed",
            format!("array {}", config.name),
            format!("found {count} problems, listed above"),
            next_step(&report),
        )),
    }
}

/// What to do about the problems.
fn next_step(report: &CheckReport) -> &'static str {
    let repairable = report.problems.iter().filter(|problem| problem.is_repairable).count();
    let all = report.problems.len() + report.more_problems as usize;
    match repairable {
        0 => "do not change the drives, and restore the affected data from a backup",
        _ if repairable == all => {
            "serve the array, and run 'quoin scrub start': it repairs them from what other drives hold"
        }
        _ => {
            "serve the array, and run 'quoin scrub start': it repairs those that say so; restore what the others name \
             from a backup"
        }
    }
}

fn walk(data: &DataDir, config: &Config) -> Result<CheckReport, Failure> {
    let which = format!("array {}", config.name);
    let failed = |why: String, next: &str| Failure::new("not checked", &which, why, next);
    let bay = PathBay::new(data.drive_paths(config), Patience::default());
    let attach = "stop the array if it runs, and attach all its drives";
    let OpenedDisks { disks, faults } = bay.open_all(config.pool).map_err(|error| failed(error, attach))?;
    if disks.is_empty() {
        return Err(failed(faults.join("; "), attach));
    }
    let world =
        LinuxWorld::start(1).map_err(|error| failed(error.to_string(), "resolve the cause given above"))?;
    let watches = world.clone();
    let watched = move |disks: Vec<Arc<dyn Disk>>| -> Result<Vec<_>, DriveError> {
        let watch = || DriveWatch::new(watches.clone(), Patience::default(), |_| ());
        disks.into_iter().map(|disk| watch().admit(disk)).collect()
    };
    // Drives are watched, as they are while an array is served.
    let walked = block_on(world.run_on(Thread::Data(0), async move {
        let disks = watched(disks).map_err(|error| error.to_string())?;
        let drives = inspect_set(disks).await.map_err(|error| error.to_string())?;
        let mut report = check(drives).await.map_err(|error| error.to_string())?;
        check_catalog(&mut report);
        Ok(report)
    }));
    world.shutdown();
    let walked = walked.unwrap_or_else(|| Err("the check itself failed".to_owned()));
    walked.map_err(|why: String| {
        if faults.is_empty() {
            failed(why, "bring back the drives as they were, or restore the data from a backup")
        } else {
            // Without drives, the only thing to say is why they are not there.
            failed(faults.into_iter().chain([why]).collect::<Vec<_>>().join("; "), attach)
        }
    })
}

/// What `quoin check` reports.
#[derive(serde::Serialize)]
struct Checked {
    ok: bool,
    problems: Vec<Problem>,
    /// Problems beyond those listed.
    more_problems: u64,
    /// The remains of an interrupted write, which opening the pool repairs.
    notes: Vec<Problem>,
    volumes: u64,
    segments: u64,
    pages: u64,
    blocks: u64,
    records: u64,
    space: Space,
}

/// The space report at the checkpoint, as proven.
#[derive(serde::Serialize)]
struct Space {
    written_bytes: u64,
    unique_bytes: u64,
    copied_bytes: u64,
    own_bytes: u64,
    shared_bytes: u64,
    removing_bytes: u64,
    settled: bool,
    /// By name.
    volumes: BTreeMap<String, VolumeSpace>,
}

#[derive(serde::Serialize)]
struct VolumeSpace {
    written_bytes: u64,
    own_bytes: u64,
    freed_bytes: u64,
}

impl Space {
    fn of(report: &CheckReport) -> Self {
        let volume = |(id, space): (&VolumeId, &quoin_pool::VolumeSpace)| {
            let quoin_pool::VolumeSpace { written_bytes, own_bytes, freed_bytes, .. } = *space;
            let name = name_of(report, *id).unwrap_or_else(|| format!("volume {id} of the pool"));
            (name, VolumeSpace { written_bytes, own_bytes, freed_bytes })
        };
        let PoolSpace { written_bytes, unique_bytes, copied_bytes, own_bytes, .. } = report.space;
        let PoolSpace { shared_bytes, removing_bytes, settled, .. } = report.space;
        let passed_over = passed_over(report);
        // What hidden volumes hold is not written by anybody who is listed.
        let held: u64 = passed_over.iter().map(|id| report.volume_space[id].written_bytes).sum();
        let written_bytes = written_bytes.saturating_sub(held);
        let listed = report.volume_space.iter().filter(|(id, _)| !passed_over.contains(id));
        let volumes = listed.map(volume).collect();
        Self {
            written_bytes,
            unique_bytes,
            copied_bytes,
            own_bytes,
            shared_bytes,
            removing_bytes,
            settled,
            volumes,
        }
    }
}

/// Of the volumes that were walked, the hidden ones of copies, and those that will be gone once the journal is replayed.
fn passed_over(report: &CheckReport) -> BTreeSet<VolumeId> {
    let hidden = hidden_volumes(&report.objects);
    let walked = report.volume_space.keys().copied();
    walked.filter(|id| hidden.contains(id) || !report.volume_ids.contains(id)).collect()
}

/// The name of a volume in the catalog.
fn name_of(report: &CheckReport, id: VolumeId) -> Option<String> {
    let object = report.objects.get(&(VOLUME_OBJECT, format!("{:010}", id.0)))?;
    let record: serde_json::Value = serde_json::from_slice(object).ok()?;
    Some(record.get("name")?.as_str()?.to_owned())
}

#[derive(serde::Serialize)]
struct Problem {
    what: String,
    problem: String,
    /// Whether a scrub repairs it; opening the pool repairs notes.
    is_repairable: bool,
}

impl From<&CheckReport> for Checked {
    fn from(report: &CheckReport) -> Self {
        let listed = |found: &[quoin_pool::Problem]| {
            let of = |f: &quoin_pool::Problem| Problem {
                what: f.what.clone(),
                problem: f.problem.clone(),
                is_repairable: f.is_repairable,
            };
            found.iter().map(of).collect()
        };
        Self {
            ok: report.is_clean(),
            problems: listed(&report.problems),
            more_problems: report.more_problems,
            notes: listed(&report.notes),
            volumes: report.volumes.saturating_sub(passed_over(report).len() as u64),
            segments: report.segments,
            pages: report.pages,
            blocks: report.blocks,
            records: report.records,
            space: Space::of(report),
        }
    }
}

impl Checked {
    fn text(&self) -> String {
        let Self { volumes, segments, pages, blocks, records, .. } = self;
        let mut lines: Vec<_> = self.problems.iter().map(|p| format!("{}: {}", p.what, p.problem)).collect();
        lines.extend(
            self.notes
                .iter()
                .map(|p| format!("note: {}: {}; opening the pool repairs it", p.what, p.problem)),
        );
        let verdict = if self.ok { "no problems found" } else { "problems found" };
        lines.push(format!(
            "{verdict}: {volumes} volumes, {segments} segments, {pages} metadata pages, {blocks} blocks and \
             {records} journal records walked"
        ));
        lines.join("\n")
    }
}
