//! What people see of drives, and of how the pool is protected over them.

use crate::{
    output::table,
    size_text,
    time::{duration_text, utc_text},
    view::{Rows, emulated, optional_size},
};
use quoin_api::{Drive, DriveAnswers, DriveLeaving, DriveState, Protection, WorkProgress};

/// How the pool is protected: what it tolerates, over which fault domains, and what is wrong.
pub(crate) fn protection_rows(protection: &Protection) -> Rows {
    let Protection { layout, tolerates, tolerates_now, domains, journal_columns, .. } = protection;
    let failures = |count: u8| if count == 1 { "1 failure".to_owned() } else { format!("{count} failures") };
    let journal = if *journal_columns == 1 {
        "the journal is on one drive".to_owned()
    } else {
        format!("the journal is on {journal_columns} drives side by side")
    };
    let held = match (*tolerates, *tolerates_now) {
        (0, _) => {
            format!("layout {layout}: NOTHING IS PROTECTED, the loss of a drive takes the pool offline")
        }
        (all, now) if now < all => {
            format!("layout {layout}: DEGRADED, tolerates {now} of {}; {journal}", failures(all))
        }
        (_, now) if protection.layout_now != *layout => {
            let narrow = &protection.layout_now;
            format!(
                "layout {layout}: DEGRADED to {narrow} over the domains left, tolerates {}; {journal}",
                failures(now)
            )
        }
        (_, now) => format!("layout {layout}: tolerates {}; {journal}", failures(now)),
    };
    let mut rows = vec![("protection", held)];
    if protection.degraded_segments > 0 {
        let (bytes, segments) = (size_text(protection.degraded_bytes), protection.degraded_segments);
        rows.push(("  degraded", format!("{bytes} in {segments} segments lack a column")));
    }
    rows.extend(protection.rebuild.as_ref().map(|rebuild| ("  rebuild", work(rebuild))));
    rows.extend(rows_of_lost_drives(protection));
    let each = if protection.each_file { ", each file" } else { "" };
    let shared = match &protection.shared_disks[..] {
        [] => String::new(),
        [_] if protection.each_file => " (all on one disk: no protection against its loss)".to_owned(),
        disks => format!(" (several on {}: no protection against its loss)", disks.join(", ")),
    };
    rows.push(("  domains", format!("{domains}{each}{shared}")));
    rows.extend(protection.next.clone().map(|next| ("  next", next)));
    rows
}

/// Drives that the pool goes on without, and what cannot be read meanwhile.
fn rows_of_lost_drives(protection: &Protection) -> Rows {
    let mut rows = Vec::new();
    if protection.failed_drives > 0 {
        let plural = if protection.failed_drives == 1 { "" } else { "s" };
        let failed = format!("{} drive{plural} that the pool goes on without", protection.failed_drives);
        rows.push(("  failed", failed));
    }
    if protection.absent_drives > 0 {
        let plural = if protection.absent_drives == 1 { "" } else { "s" };
        rows.push((
            "  absent",
            format!(
                "{} drive{plural} with {}, waited for until the repair delay is over",
                protection.absent_drives,
                size_text(protection.absent_bytes)
            ),
        ));
    }
    if !protection.settled && !rows.is_empty() {
        let until = "what was written before the last loss is put on the drives that are left; until then another loss may take \
                     the pool offline";
        rows.push(("  settling", until.to_owned()));
    }
    if protection.unreadable_segments > 0 {
        let (bytes, segments) = (size_text(protection.unreadable_bytes), protection.unreadable_segments);
        rows.push((
            "  unreadable",
            format!(
                "up to {bytes} in {segments} segments, until the drives that are away are back; see quoin volume \
                 unreadable"
            ),
        ));
    }
    rows
}

pub(crate) fn drives(drives: &[Drive]) -> String {
    let any_emulated = drives.iter().any(|drive| drive.emulated.is_some());
    let row = |d: &Drive| {
        let path =
            d.found_at.as_ref().map_or_else(|| d.path.clone(), |at| format!("{at} (not at {})", d.path));
        let path = d.device.as_ref().map_or_else(|| path.clone(), |device| format!("{path} -> {device}"));
        let used = match (d.used_bytes, d.data_bytes) {
            (Some(used), Some(data)) if data > 0 => format!("{} %", 100 * used / data),
            _ => "-".to_owned(),
        };
        let domain = d.domain.clone().unwrap_or_else(|| "-".to_owned());
        let mut cells =
            vec![path, optional_size(d.size_bytes), drive_roles(d), domain, used, d.errors.to_string()];
        if any_emulated {
            cells.push(d.emulated.as_ref().map_or_else(|| "-".to_owned(), emulated));
        }
        cells.push(drive_state(d));
        cells
    };
    // Reasons may be long: the state comes last.
    let mut header = vec!["drive", "size", "roles", "domain", "used", "errors"];
    header.extend(any_emulated.then_some("emulated"));
    header.push("state");
    table(&header, drives.iter().map(row).collect(), "no drives")
}

/// What a drive stores.
pub(crate) fn drive_roles(drive: &Drive) -> String {
    match (drive.journal, drive.data) {
        (true, true) => "journal, data",
        (true, false) => "journal",
        (false, true) => "data",
        (false, false) => "-",
    }
    .to_owned()
}

/// How a drive is.
pub(crate) fn drive_state(drive: &Drive) -> String {
    let why = drive.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    match (drive.state, drive.answers) {
        (DriveState::Failed, DriveAnswers::Failed) if why.is_empty() => "FAILED: does not answer".to_owned(),
        (DriveState::Failed, _) => format!("FAILED{why}"),
        (DriveState::Suspect, _) => "SUSPECT: does not answer".to_owned(),
        (DriveState::Missing, _) => format!("MISSING{why}"),
        (DriveState::Absent, _) => match drive.absent_since_ms {
            Some(since) => format!("ABSENT since {}", utc_text(since)),
            None => format!("ABSENT{why}"),
        },
        (DriveState::Foreign, _) => format!("not of the pool{why}"),
        (_, _) if drive.reason.is_some() => format!("offline{why}"),
        (_, _) if drive.no_room => "NO ROOM: its file system is full".to_owned(),
        (DriveState::Leaving, _) => match &drive.leaving {
            Some(leaving) if drive.failing => format!("FAILING, leaving: {}", self::leaving(leaving)),
            Some(leaving) => format!("leaving: {}", self::leaving(leaving)),
            None => "leaving".to_owned(),
        },
        (DriveState::Removed, _) => "removed".to_owned(),
        (DriveState::Active, _) if drive.failing && drive.online => {
            "online, FAILING: it errs again and again, and cannot be evacuated yet".to_owned()
        }
        (DriveState::Active, _) if drive.slow && drive.online => {
            "online, SLOW: it is read only where there is no other way".to_owned()
        }
        (DriveState::Active, _) => if drive.online { "online" } else { "not open" }.to_owned(),
        (DriveState::Unknown, _) => "not open".to_owned(),
    }
}

/// How far a drive is that leaves.
pub(crate) fn leaving(leaving: &DriveLeaving) -> String {
    let then = match (&leaving.replaced_by, leaving.removes) {
        (Some(other), _) => format!("; then {other} takes its place"),
        (None, true) => "; then it is removed".to_owned(),
        (None, false) => String::new(),
    };
    let held = match leaving {
        DriveLeaving { is_done: true, .. } => "nothing is left on it".to_owned(),
        DriveLeaving { left_bytes: 0, holds_journal: true, .. } => {
            "a part of the journal and metadata are left on it".to_owned()
        }
        DriveLeaving { left_bytes: 0, .. } => "metadata is left on it".to_owned(),
        DriveLeaving { left_bytes, percent, .. } => {
            let left = format!("{percent:.1} % moved, {} left", size_text(*left_bytes));
            let rate =
                leaving.bytes_per_s.filter(|rate| *rate > 0).map(|rate| format!(", {}/s", size_text(rate)));
            let takes = leaving.remaining_s.map(|seconds| format!(", about {}", duration_text(seconds)));
            left + &rate.unwrap_or_default() + &takes.unwrap_or_default()
        }
    };
    held + &then
}

/// How far work in the background is.
pub(crate) fn work(work: &WorkProgress) -> String {
    let left = format!("{:.1} % done, {} left", work.percent, size_text(work.left_bytes));
    let rate = work.bytes_per_s.filter(|rate| *rate > 0).map(|rate| format!(", {}/s", size_text(rate)));
    let takes = work.remaining_s.map(|seconds| format!(", about {}", duration_text(seconds)));
    left + &rate.unwrap_or_default() + &takes.unwrap_or_default()
}
