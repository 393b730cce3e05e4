//! What people see.

use crate::{
    drive_view::protection_rows,
    output::{pairs, table},
    policy::compliance,
    pool::spare_text,
    size_text,
    time::{duration_text, utc_text},
};
use quoin_api::{
    Capacity, Chap, ComplianceState, EmulatedCondition, EmulatedDrive, Engine, GivingBack, Host, Integrity,
    Mapping, Origin, Retention, Session, SpaceLevel, Status, Volume, VolumeKind,
};

pub(crate) use crate::drive_view::{drive_roles, drive_state, drives, leaving, work};

pub(crate) fn optional_size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), size_text)
}

fn joined<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    if items.is_empty() { "-".to_owned() } else { items.iter().map(text).collect::<Vec<_>>().join(", ") }
}

pub(crate) fn seen_by(volume: &Volume) -> String {
    joined(&volume.mappings, |mapping| format!("{}:{}", mapping.host, mapping.lun))
}

fn sees(host: &Host) -> String {
    joined(&host.mappings, |mapping| format!("{}:{}", mapping.lun, mapping.volume))
}

pub(crate) fn volumes(volumes: &[Volume]) -> String {
    let row = |v: &Volume| {
        vec![
            v.name.clone(),
            size_text(v.size_bytes),
            optional_size(v.mapped_bytes),
            kind(v),
            v.block_bytes.to_string(),
            state(v),
            seen_by(v),
            policy_column(v),
            folder(v),
            tags(v),
        ]
    };
    let header =
        ["name", "size", "allocated", "kind", "block", "state", "host:lun", "policy", "folder", "tags"];
    table(
        &header,
        volumes.iter().map(row).collect(),
        "no volumes; create one: quoin volume create NAME --size 4G",
    )
}

fn kind(volume: &Volume) -> String {
    let space = if volume.thick { "thick" } else { "thin" };
    let access = if volume.writable || volume.kind == VolumeKind::Template { "" } else { ", read-only" };
    let modified = if volume.modified_ms.is_some() { ", modified" } else { "" };
    match volume.kind {
        VolumeKind::Volume => format!("{space}{access}"),
        kind => format!("{space} {kind}{access}{modified}"),
    }
}

/// The policy of a volume, marked while it is not as that says.
fn policy_column(volume: &Volume) -> String {
    let state = volume.compliance.as_ref().map(|found| (found.state, found.percent));
    match state {
        Some((ComplianceState::Converting, percent)) => {
            format!("{}, converting {percent:.0} %", volume.policy)
        }
        Some((ComplianceState::Reduced, _)) => format!("{}, REDUCED", volume.policy),
        Some((ComplianceState::Differs, _)) => format!("{}, DIFFERS", volume.policy),
        Some((ComplianceState::Compliant, _)) | None => volume.policy.clone(),
    }
}

/// Whether a volume is served.
fn state(volume: &Volume) -> String {
    if volume.offline.is_none() { "online" } else { "OFFLINE" }.to_owned()
}

/// When a snapshot was modified.
pub(crate) fn modified(modified_ms: Option<u64>) -> String {
    modified_ms.map_or_else(|| "no".to_owned(), utc_text)
}

fn folder(volume: &Volume) -> String {
    if volume.folder.is_empty() { "-".to_owned() } else { volume.folder.clone() }
}

fn tags(volume: &Volume) -> String {
    let tags: Vec<_> = volume.tags.iter().collect();
    joined(&tags, |(key, value)| format!("{key}={value}"))
}

/// What is not known while the pool is offline.
fn known(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

pub(crate) fn volume(volume: &Volume) -> String {
    let mut rows = vec![
        ("volume", volume.name.clone()),
        ("uuid", volume.uuid.to_string()),
        ("wwn", volume.wwn.clone()),
        ("size", format!("{} ({} bytes)", size_text(volume.size_bytes), volume.size_bytes)),
        ("allocated", optional_size(volume.mapped_bytes)),
        ("freed by delete", optional_size(volume.freed_by_delete_bytes)),
        ("kind", kind(volume)),
        ("reserved", optional_size(volume.reserved_bytes)),
        ("compression", known(volume.compression)),
        ("deduplication", known(volume.deduplication)),
        ("block", format!("{} bytes", volume.block_bytes)),
        ("created", utc_text(volume.created_ms)),
        ("host:lun", seen_by(volume)),
        ("folder", folder(volume)),
        ("tags", tags(volume)),
        ("policy", policy(volume)),
    ];
    let state = volume.offline.as_ref().map_or_else(|| "online".to_owned(), |why| format!("OFFLINE: {why}"));
    rows.insert(2, ("state", state));
    if let Some(origin) = &volume.origin {
        rows.insert(2, ("origin", self::origin(origin)));
    }
    if let Some(modified_ms) = volume.modified_ms {
        rows.push(("modified", format!("since {}: it does not hold what was taken", utc_text(modified_ms))));
    }
    if let Some(until_ms) = volume.retain_until_ms {
        rows.push(("immutable", format!("until {}, if the array keeps running", utc_text(until_ms))));
    }
    if let Some(group) = &volume.group {
        rows.push(("group", group.clone()));
    }
    if volume.trimming {
        rows.push(("shrinking", "the space beyond the new end is being freed".to_owned()));
    }
    pairs(rows)
}

/// The policy of a volume, and whether it is as that says.
fn policy(volume: &Volume) -> String {
    match &volume.compliance {
        None => volume.policy.clone(),
        Some(found) => format!("{} ({}): {}", volume.policy, found.layout, compliance(volume, found)),
    }
}

/// `volume v1 (deleted)`, and the moment.
fn origin(origin: &Origin) -> String {
    let deleted = if origin.source_deleted { ", which was deleted" } else { "" };
    let set = match (&origin.group, &origin.set) {
        (Some(group), Some(set)) => format!(", set {set} of group {group}"),
        _ => String::new(),
    };
    let (kind, source) = (origin.kind, &origin.source);
    format!("{kind} of {source}{deleted}, as of {}{set}", utc_text(origin.taken_ms))
}

fn login(host: &Host) -> String {
    match &host.chap {
        None => "by name".to_owned(),
        Some(Chap { host_user, array_user: None }) => format!("CHAP as {host_user}"),
        Some(Chap { host_user, array_user: Some(array) }) => format!("CHAP as {host_user}, array as {array}"),
    }
}

pub(crate) fn hosts(hosts: &[Host]) -> String {
    let row = |h: &Host| vec![h.name.clone(), h.initiators.join(", "), h.sessions.to_string(), sees(h)];
    let empty = "no hosts; create one: quoin host create NAME --initiator IQN";
    table(&["name", "initiators", "sessions", "lun:volume"], hosts.iter().map(row).collect(), empty)
}

pub(crate) fn host(host: &Host) -> String {
    pairs(vec![
        ("host", host.name.clone()),
        ("initiators", host.initiators.join(", ")),
        ("login", login(host)),
        ("sessions", host.sessions.to_string()),
        ("created", utc_text(host.created_ms)),
        ("lun:volume", sees(host)),
    ])
}

pub(crate) fn mappings(mappings: &[Mapping]) -> String {
    let access = |m: &Mapping| if m.read_only { "read-only" } else { "read-write" }.to_owned();
    let row = |m: &Mapping| vec![m.host.clone(), m.lun.to_string(), m.volume.clone(), access(m)];
    let empty = "no mappings; create one: quoin map VOLUME --host HOST";
    table(&["host", "lun", "volume", "access"], mappings.iter().map(row).collect(), empty)
}

pub(crate) fn sessions(sessions: &[Session]) -> String {
    let row = |s: &Session| {
        let host = s.host.clone().unwrap_or_else(|| "-".to_owned());
        let group = s.portal_group.to_string();
        vec![host, s.initiator.clone(), s.peer.clone(), group, utc_text(s.since_ms)]
    };
    table(
        &["host", "initiator", "peer", "portal group", "since"],
        sessions.iter().map(row).collect(),
        "no sessions",
    )
}

fn read_cache(engine: &Engine) -> String {
    let held = size_text(engine.cache_ram_bytes);
    let looked_up = engine.cache_hits + engine.cache_misses;
    match looked_up {
        0 => format!("{held} held, no lookups yet"),
        _ => format!("{held} held, {:.1} % hits", engine.cache_hits as f64 * 100.0 / looked_up as f64),
    }
}

fn left(giving_back: &GivingBack) -> String {
    let estimate = match (giving_back.bytes_per_s, giving_back.remaining_s) {
        (Some(rate), Some(seconds)) => {
            format!(", {}/s, {} left", size_text(rate), duration_text(seconds))
        }
        _ => String::new(),
    };
    match (giving_back.bytes, giving_back.entries) {
        (0, 0) => "nothing".to_owned(),
        (0, entries) => format!("{entries} entries to process"),
        (bytes, _) => format!("{} of deleted data{estimate}", size_text(bytes)),
    }
}

/// `3 snapshots; the retention clock shows …`.
fn retention(retention: &Retention) -> String {
    let count = retention.immutable_snapshots;
    let shows = utc_text(retention.clock_ms);
    let by = duration_text(retention.behind_ms.unsigned_abs() / 1000);
    let off = match (retention.wall_clock_set_back, retention.behind_ms / 1000) {
        (true, _) => format!("; the system clock is {by} behind it: IT WAS SET BACK"),
        (false, ..10) => String::new(),
        (false, _) => format!(", {by} behind the system clock, because time off does not count"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} snapshot{plural}; the retention clock shows {shows}{off}")
}

/// A name and what it is, as a line of the status shows them.
pub(crate) type Rows = Vec<(&'static str, String)>;

pub(crate) fn status(status: &Status) -> String {
    let mut rows = identity_rows(status);
    rows.extend(object_rows(status));
    rows.extend(status.protection.iter().flat_map(protection_rows));
    rows.extend(status.capacity.iter().flat_map(space_rows));
    rows.extend(upkeep_rows(status));
    let mut parts = vec![pairs(rows)];
    if let Some(recovery) = &status.recovery {
        parts.push(format!("recovery\n{}", figures(recovery)));
    }
    if let Some(engine) = &status.engine {
        parts.push(format!("engine\n{}", figures(engine)));
    }
    parts.push(drives(&status.drives));
    parts.join("\n\n")
}

fn identity_rows(status: &Status) -> Rows {
    let mut rows = vec![
        ("array", status.name.clone()),
        ("ready", if status.ready { "yes" } else { "no" }.to_owned()),
        ("state", format!("{} since {}", status.state, utc_text(status.since_ms))),
    ];
    if let Some(reason) = &status.reason {
        rows.push(("reason", reason.clone()));
    }
    if !status.offline_volumes.is_empty() {
        let volumes = status.offline_volumes.join(", ");
        let why = "snapshots hold more than a snapshot reserve; see quoin snapshot reserve";
        rows.push(("OFFLINE", format!("volumes {volumes}: {why}")));
    }
    rows.extend([
        ("target", status.iqn.clone()),
        ("portals", joined(&status.portals, String::clone)),
        ("nbd", joined(&status.nbd, String::clone)),
        ("pool", status.pool.to_string()),
        ("version", status.version.clone()),
        ("up", duration_text(status.uptime_s)),
    ]);
    rows
}

fn object_rows(status: &Status) -> Rows {
    match &status.objects {
        None => {
            vec![("objects", "not known: the pool has not been open since the array started".to_owned())]
        }
        Some(objects) => vec![
            ("volumes", objects.volumes.to_string()),
            ("snapshots", objects.snapshots.to_string()),
            ("groups", objects.groups.to_string()),
            ("hosts", objects.hosts.to_string()),
            ("mappings", objects.mappings.to_string()),
            ("exports", objects.exports.to_string()),
            ("sessions", objects.sessions.to_string()),
        ],
    }
}

fn space_rows(capacity: &Capacity) -> Rows {
    let mut rows = Rows::new();
    let level = match capacity.level {
        SpaceLevel::Normal => "",
        SpaceLevel::Notice => ", above the first threshold",
        SpaceLevel::Warning => ", above the warning threshold",
        SpaceLevel::Critical => ", above the critical threshold",
        SpaceLevel::Full => ", FULL: writes that need space fail; delete volumes or unmap data",
    };
    rows.push((
        "space",
        format!("{:.0} % of {}{level}", capacity.used_percent, size_text(capacity.usable_bytes)),
    ));
    rows.push(("  thresholds", thresholds(capacity.thresholds_percent)));
    rows.push(("  used", size_text(capacity.used_bytes)));
    rows.push(("  allocated", size_text(capacity.mapped_bytes)));
    let unused = size_text(capacity.reserved_unused_bytes);
    rows.push((
        "  reserved",
        format!("{} for thick volumes, {unused} of it unused", size_text(capacity.reserved_bytes)),
    ));
    rows.push(("  free", size_text(capacity.free_bytes)));
    rows.push(("  spare", spare_text(&capacity.spare)));
    for (number, slice) in capacity.slices.iter().enumerate().filter(|_| capacity.slices.len() > 1) {
        let (free, held) = (size_text(slice.free_bytes), size_text(slice.usable_bytes));
        let plural = if slice.volumes == 1 { "" } else { "s" };
        let holds = format!("{number} with {} volume{plural} holds {held}, {free} of it free", slice.volumes);
        rows.push(("  slice", holds));
    }
    rows.push(("provisioned", size_text(capacity.provisioned_bytes)));
    let (metadata, reserve) = (size_text(capacity.metadata_bytes), size_text(capacity.reserve_bytes));
    rows.push(("overhead", format!("{metadata} of metadata, {reserve} in reserve")));
    rows
}

/// Thresholds of space: notice, warning and critical, in percent, 0 for off.
pub(crate) fn thresholds(percents: [u8; 3]) -> String {
    let named = ["notice", "warning", "critical"].into_iter().zip(percents);
    let text = |(name, percent): (&str, u8)| match percent {
        0 => format!("{name} off"),
        percent => format!("{name} {percent} %"),
    };
    named.map(text).collect::<Vec<_>>().join(", ")
}

/// Returns the lines about what the array does with its contents: frees, keeps, checks and caches.
fn upkeep_rows(status: &Status) -> Rows {
    let mut rows = Rows::new();
    if let Some(giving_back) = &status.giving_back {
        rows.push(("being freed", left(giving_back)));
    }
    if let Some(retention) = &status.retention {
        rows.push(("immutable", self::retention(retention)));
    }
    if let Some(bin) = status.recycle_bin.as_ref().filter(|bin| bin.volumes > 0) {
        let plural = if bin.volumes == 1 { "" } else { "s" };
        let holds = bin.held_bytes.map(|bytes| format!(", holding {}", size_text(bytes))).unwrap_or_default();
        rows.push(("recycle bin", format!("{} deleted volume{plural}{holds}", bin.volumes)));
    }
    rows.extend(status.integrity.as_ref().map(|found| ("integrity", integrity(found))));
    if let Some(engine) = &status.engine {
        rows.push(("read cache", read_cache(engine)));
    }
    rows
}

fn integrity(integrity: &Integrity) -> String {
    let damaged = match integrity.damaged_ranges {
        0 => "no known damage".to_owned(),
        1 => "DAMAGED: 1 range cannot be read; see quoin scrub status".to_owned(),
        ranges => format!("DAMAGED: {ranges} ranges cannot be read; see quoin scrub status"),
    };
    let scrub = match (integrity.scrub_percent, integrity.last_scrub_ms) {
        (Some(percent), _) => format!("scrub at {percent:.0} %"),
        (None, Some(ended_ms)) => format!("last scrub {}", utc_text(ended_ms)),
        (None, None) => "no scrub yet".to_owned(),
    };
    format!("{damaged}; {scrub}")
}

/// The fields of a flat structure, by name.
fn figures(value: &impl serde::Serialize) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(value) else { return String::new() };
    pairs(fields.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect())
}

/// `15k 180 IOPS 5.5 ms 150 MB/s, 10 times as slow`.
pub(crate) fn emulated(emulated: &EmulatedDrive) -> String {
    let EmulatedDrive { technology, iops, latency_ms, mbps, .. } = emulated;
    let condition = match emulated.condition {
        EmulatedCondition::Healthy => String::new(),
        EmulatedCondition::Slow => format!(", {} times as slow", emulated.slow_factor),
        condition => format!(", {condition}"),
    };
    format!("{technology} {iops} IOPS {latency_ms} ms {mbps} MB/s{condition}")
}
