//! What people see.

use crate::{
    output::{pairs, table},
    size_text,
    time::{duration_text, utc_text},
};
use quoin_api::{Chap, Drive, Engine, Event, Host, Mapping, Session, Status, Volume};

fn optional_size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), size_text)
}

fn joined<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    if items.is_empty() { "-".to_owned() } else { items.iter().map(text).collect::<Vec<_>>().join(", ") }
}

fn seen_by(volume: &Volume) -> String {
    joined(&volume.mappings, |mapping| format!("{}:{}", mapping.host, mapping.lun))
}

fn sees(host: &Host) -> String {
    joined(&host.mappings, |mapping| format!("{}:{}", mapping.lun, mapping.volume))
}

pub(crate) fn volumes(volumes: &[Volume]) -> String {
    let row = |v: &Volume| {
        let block = v.block_bytes.to_string();
        vec![v.name.clone(), size_text(v.size_bytes), optional_size(v.mapped_bytes), block, seen_by(v)]
    };
    let header = ["name", "size", "used", "block", "host:lun"];
    table(
        &header,
        volumes.iter().map(row).collect(),
        "no volumes; create one: quoin volume create NAME --size 4G",
    )
}

pub(crate) fn volume(volume: &Volume) -> String {
    pairs(vec![
        ("volume", volume.name.clone()),
        ("uuid", volume.uuid.to_string()),
        ("size", format!("{} ({} bytes)", size_text(volume.size_bytes), volume.size_bytes)),
        ("used", optional_size(volume.mapped_bytes)),
        ("block", format!("{} bytes", volume.block_bytes)),
        ("created", format!("{} UTC", utc_text(volume.created_ms))),
        ("host:lun", seen_by(volume)),
    ])
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
        ("created", format!("{} UTC", utc_text(host.created_ms))),
        ("lun:volume", sees(host)),
    ])
}

pub(crate) fn mappings(mappings: &[Mapping]) -> String {
    let access = |m: &Mapping| if m.read_only { "read" } else { "read, write" }.to_owned();
    let row = |m: &Mapping| vec![m.host.clone(), m.lun.to_string(), m.volume.clone(), access(m)];
    let empty = "no mappings; make one: quoin map VOLUME --host HOST";
    table(&["host", "lun", "volume", "access"], mappings.iter().map(row).collect(), empty)
}

pub(crate) fn sessions(sessions: &[Session]) -> String {
    let row = |s: &Session| {
        let host = s.host.clone().unwrap_or_else(|| "-".to_owned());
        vec![host, s.initiator.clone(), s.peer.clone(), utc_text(s.since_ms)]
    };
    table(&["host", "initiator", "peer", "since (utc)"], sessions.iter().map(row).collect(), "no sessions")
}

pub(crate) fn events(events: &[Event]) -> String {
    let row = |e: &Event| vec![utc_text(e.at_ms), e.severity.to_string(), e.object.clone(), e.text.clone()];
    table(&["time (utc)", "severity", "object", "event"], events.iter().map(row).collect(), "no events")
}

fn read_cache(engine: &Engine) -> String {
    let held = size_text(engine.cache_ram_bytes);
    let looked_up = engine.cache_hits + engine.cache_misses;
    match looked_up {
        0 => format!("{held} held, not asked yet"),
        _ => format!("{held} held, {:.1} % hits", engine.cache_hits as f64 * 100.0 / looked_up as f64),
    }
}

pub(crate) fn status(status: &Status) -> String {
    let mut rows = vec![
        ("array", status.name.clone()),
        ("ready", if status.ready { "yes" } else { "no" }.to_owned()),
        ("state", status.state.to_string()),
    ];
    if let Some(reason) = &status.reason {
        rows.push(("reason", reason.clone()));
    }
    let objects = &status.objects;
    rows.extend([
        ("target", status.iqn.clone()),
        ("portals", status.portals.join(", ")),
        ("nbd", joined(&status.nbd, String::clone)),
        ("pool", status.pool.to_string()),
        ("version", status.version.clone()),
        ("up", duration_text(status.uptime_s)),
        ("volumes", objects.volumes.to_string()),
        ("hosts", objects.hosts.to_string()),
        ("mappings", objects.mappings.to_string()),
        ("exports", objects.exports.to_string()),
        ("sessions", objects.sessions.to_string()),
    ]);
    if let Some(capacity) = &status.capacity {
        let (used, usable) = (size_text(capacity.used_bytes), size_text(capacity.usable_bytes));
        rows.push(("space", format!("{used} of {usable} used")));
        rows.push(("provisioned", size_text(capacity.provisioned_bytes)));
    }
    if let Some(engine) = &status.engine {
        rows.push(("read cache", read_cache(engine)));
    }
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

/// The fields of a flat structure, by name.
fn figures(value: &impl serde::Serialize) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(value) else { return String::new() };
    pairs(fields.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect())
}

fn drives(drives: &[Drive]) -> String {
    let row = |d: &Drive| {
        let state = match &d.reason {
            Some(reason) => format!("offline: {reason}"),
            None => if d.online { "online" } else { "not open" }.to_owned(),
        };
        let roles = match (d.journal, d.data) {
            (true, true) => "journal, data",
            (true, false) => "journal",
            (false, true) => "data",
            (false, false) => "-",
        };
        vec![d.path.clone(), optional_size(d.size_bytes), roles.to_owned(), d.errors.to_string(), state]
    };
    table(&["drive", "size", "roles", "errors", "state"], drives.iter().map(row).collect(), "no drives")
}
