//! The offline check of the volumes in a pool's catalog.

use crate::{
    Assigned, VolumeSpec,
    copy_record::{copy_problems, hidden_volumes},
    group::{GROUP_OBJECT, Group},
    limits::MEMBERS_MAX,
    name::check_name,
    record::{RESERVATIONS_OBJECT, SETTINGS_OBJECT, TAGS_OBJECT, VOLUME_OBJECT, VolumeRecord},
    retention::clock_problem,
};
use quoin_base::VolumeId;
use quoin_pool::CheckReport;
use std::collections::BTreeMap;

/// Adds the problems of the volumes of a catalog to the report. Each object must decode and have a volume in the pool,
/// a unique name, and the reservation that it needs. Each volume of the pool must have an object: its own, or that of
/// the copy whose hidden volume it is.
pub fn check_volumes(report: &mut CheckReport) {
    let mut known = BTreeMap::new();
    let objects: Vec<_> = report.objects.iter().filter(|((kind, _), _)| *kind == VOLUME_OBJECT).collect();
    let mut found = Vec::new();
    for ((_, key), value) in objects {
        let tags = report.objects.get(&(TAGS_OBJECT, key.clone())).map(Vec::as_slice);
        match VolumeRecord::decode(key, value, tags) {
            Err(error) => found.push((format!("volume object {key}"), error.to_string())),
            Ok(record) => {
                check_volume(report, &record, &mut found);
                // A volume in the recycle bin does not occupy its name.
                let what = format!("volume {}", record.name);
                let name = record.deleted.is_none().then_some(record.name);
                if name.is_some() && known.values().any(|other| *other == name) {
                    found.push((what, "two volumes have this name".to_owned()));
                }
                known.insert(record.id, name);
            }
        }
    }
    // Tags, reservations and settings are objects of their own, each of a volume.
    for (of, what) in
        [(TAGS_OBJECT, "tags"), (RESERVATIONS_OBJECT, "reservations"), (SETTINGS_OBJECT, "settings")]
    {
        for ((_, key), _) in report.objects.iter().filter(|((kind, _), _)| *kind == of) {
            if !report.objects.contains_key(&(VOLUME_OBJECT, key.clone())) {
                found.push((format!("{what} object {key}"), "there is no volume of this key".to_owned()));
            }
        }
    }
    check_groups(report, &mut found);
    if let Some(problem) = clock_problem(&report.objects) {
        found.push(("the retention clock".to_owned(), problem));
    }
    found.extend(copy_problems(&report.objects, &report.volume_ids));
    // Each volume of the pool must be described by an object of the catalog.
    let hidden = hidden_volumes(&report.objects);
    let described = |id: &VolumeId| known.contains_key(id) || hidden.contains(id);
    for id in report.volume_ids.iter().filter(|id| !described(id)) {
        found.push((format!("volume {id} of the pool"), "no object of the catalog describes it".to_owned()));
    }
    found.into_iter().for_each(|(what, problem)| report.add(what, problem));
}

/// The problems of one volume by itself: the pool must have it, and reserve what its record says.
fn check_volume(report: &CheckReport, record: &VolumeRecord, found: &mut Vec<(String, String)>) {
    let what = format!("volume {}", record.name);
    if !report.volume_ids.contains(&record.id) {
        found.push((what.clone(), format!("the pool has no volume {}; its data is lost", record.id)));
    }
    // The record must be one that a volume could be created with.
    let spec = VolumeSpec {
        name: record.name.clone(),
        size_bytes: record.space.size_bytes,
        block_bytes: record.space.block_bytes,
        thick: record.space.thick,
        tags: record.labels.tags.clone(),
        folder: record.labels.folder.clone(),
        policy: Assigned { name: record.labels.policy.clone(), ..Assigned::default() },
    };
    if let Err(error) = spec.check() {
        found.push((what.clone(), error.to_string()));
    }
    // The pool must reserve what the record says.
    let kept = report.reservations.get(&record.id).copied().unwrap_or(0);
    if kept != record.reserved_bytes() {
        let due = record.reserved_bytes();
        found.push((what, format!("the pool keeps {kept} bytes for it instead of {due}")));
    }
}

/// The problems of groups: each object must decode and have a unique name, and its members must exist and be in no
/// other group.
fn check_groups(report: &CheckReport, found: &mut Vec<(String, String)>) {
    let (mut names, mut members) = (BTreeMap::new(), BTreeMap::new());
    for ((_, key), value) in report.objects.iter().filter(|((kind, _), _)| *kind == GROUP_OBJECT) {
        let group = match Group::decode(key, value) {
            Ok(group) => group,
            Err(error) => {
                found.push((format!("group object {key}"), error.to_string()));
                continue;
            }
        };
        let what = format!("group {}", group.name);
        let mut say = |problem: String| found.push((what.clone(), problem));
        // What the group says of itself.
        if group.id.to_string() != *key {
            say(format!("its object's key is {key}, its identity {}", group.id));
        }
        if let Err(error) = check_name(&group.name) {
            say(error.to_string());
        }
        if names.insert(group.name.clone(), group.id).is_some() {
            say("two groups have this name".to_owned());
        }
        if group.members.len() > MEMBERS_MAX {
            say(format!("it has {} volumes, more than {MEMBERS_MAX}", group.members.len()));
        }
        // Its members: there, and in no other group.
        for member in group.members {
            if !report.volume_ids.contains(&member) {
                say(format!("the pool has no volume {member}"));
            }
            if let Some(other) = members.insert(member, group.name.clone()) {
                say(format!("volume {member} is in group {other} too"));
            }
        }
    }
}
