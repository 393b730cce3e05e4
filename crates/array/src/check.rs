//! The offline check of what the array keeps in the pool's catalog.

use crate::{
    ArrayError,
    bin_setting::BinRecord,
    drive_leaving::leaving_problem,
    events::log_problem,
    history::history_problem,
    policies::policy_problem,
    pool_settings::pool_settings_problem,
    portal_list::portal_problem,
    qos_record::{Limited, QosRecord},
    rebuild::rebuild_problem,
    record::{
        EVENT_LOG_OBJECT, EVENT_OBJECT, EXPORT_OBJECT, ExportRecord, HISTORY_OBJECT, HOST_OBJECT, HostRecord,
        LEAVING_OBJECT, MAPPING_OBJECT, MappingRecord, OWN_RESERVE_OBJECT, POLICY_OBJECT, POOL_OBJECT,
        PORTAL_OBJECT, QOS_OBJECT, REBUILD_OBJECT, RECYCLE_BIN_OBJECT, REQUEST_OBJECT, RESERVE_OBJECT,
        SCHEDULE_OBJECT, SCRUB_OBJECT, decode, mapping_key,
    },
    requests::request_problem,
    reserve_watch::{ReserveRecord, Scope},
    schedule_record::ScheduleRecord,
    scrub::scrub_problem,
};
use quoin_pool::{CheckReport, ObjectKind};
use quoin_target::ExportRules;
use quoin_volume::{GROUP_OBJECT, check_volumes};
use std::collections::BTreeMap;

/// What was found: the object, and what is wrong with it.
type Found = Vec<(String, String)>;

/// Adds the problems of the volumes, hosts, mappings, exports and events in a pool's catalog to its report.
pub fn check_catalog(report: &mut CheckReport) {
    check_volumes(report);
    let mut found = Found::new();
    let hosts = check_hosts(report, &mut found);
    check_mappings(report, &hosts, &mut found);
    check_exports(report, &mut found);
    check_schedules(report, &mut found);
    check_reserves(report, &mut found);
    check_recycle_bin(report, &mut found);
    check_notes(report, &mut found);
    found.into_iter().for_each(|(what, problem)| report.add(what, problem));
}

/// Returns the hosts that can be read, for the check of what refers to them.
fn check_hosts(report: &CheckReport, found: &mut Found) -> BTreeMap<String, HostRecord> {
    let mut hosts: BTreeMap<String, HostRecord> = BTreeMap::new();
    for (key, value) in objects(report, HOST_OBJECT) {
        match decode::<HostRecord>(key, value) {
            Err(error) => found.push((format!("host {key}"), why(error))),
            Ok(host) => {
                if host.name != *key {
                    found.push((format!("host {key}"), format!("it calls itself {}", host.name)));
                }
                let taken = |own: &String| hosts.values().find(|other| other.initiators.contains(own));
                for (own, other) in host.initiators.iter().filter_map(|own| Some((own, taken(own)?))) {
                    found.push((
                        format!("host {key}"),
                        format!("initiator {own} belongs to host {} too", other.name),
                    ));
                }
                hosts.insert(key.clone(), host);
            }
        }
    }
    hosts
}

fn check_mappings(report: &CheckReport, hosts: &BTreeMap<String, HostRecord>, found: &mut Found) {
    for (key, value) in objects(report, MAPPING_OBJECT) {
        let what = || format!("mapping {key}");
        match decode::<MappingRecord>(key, value) {
            Err(error) => found.push((what(), why(error))),
            Ok(mapping) => {
                if mapping_key(&mapping.host, mapping.lun) != *key {
                    found.push((what(), format!("it says host {}, LUN {}", mapping.host, mapping.lun)));
                }
                if !hosts.contains_key(&mapping.host) {
                    found.push((what(), format!("there is no host {}", mapping.host)));
                }
                if !report.volume_ids.contains(&mapping.volume) {
                    found.push((what(), format!("the pool has no volume {}", mapping.volume)));
                }
            }
        }
    }
}

fn check_exports(report: &CheckReport, found: &mut Found) {
    for (key, value) in objects(report, EXPORT_OBJECT) {
        let what = || format!("export {key}");
        match decode::<ExportRecord>(key, value) {
            Err(error) => found.push((what(), why(error))),
            Ok(export) => {
                if export.name != *key {
                    found.push((what(), format!("it calls itself {}", export.name)));
                }
                if !report.volume_ids.contains(&export.volume) {
                    found.push((what(), format!("the pool has no volume {}", export.volume)));
                }
                if let Err(error) = ExportRules::new(&export.networks, &export.tls_clients) {
                    found.push((what(), error.to_string()));
                }
            }
        }
    }
}

fn check_schedules(report: &CheckReport, found: &mut Found) {
    for (key, value) in objects(report, SCHEDULE_OBJECT) {
        let what = || format!("schedule {key}");
        match decode::<ScheduleRecord>(key, value) {
            Err(error) => found.push((what(), why(error))),
            Ok(schedule) => found.extend(schedule.problem(key).map(|problem| (what(), problem))),
        }
    }
}

/// Checks the pool's snapshot reserve, and those of volumes and groups.
fn check_reserves(report: &CheckReport, found: &mut Found) {
    for (key, value) in objects(report, RESERVE_OBJECT) {
        if let Err(error) = decode::<ReserveRecord>(key, value) {
            found.push(("the snapshot reserve".to_owned(), why(error)));
        }
    }
    for (key, value) in objects(report, OWN_RESERVE_OBJECT) {
        let what = || format!("snapshot reserve {key}");
        if let Err(error) = decode::<ReserveRecord>(key, value) {
            found.push((what(), why(error)));
        }
        match Scope::of_key(key) {
            Some(Scope::Volume(id)) if !report.volume_ids.contains(&id) => {
                found.push((what(), format!("the pool has no volume {id}")));
            }
            Some(Scope::Group(id))
                if !objects(report, GROUP_OBJECT).any(|(key, _)| *key == id.to_string()) =>
            {
                found.push((what(), format!("there is no group {id}")));
            }
            Some(_) => {}
            None => found.push((what(), "it is of neither a volume nor a group".to_owned())),
        }
    }
}

fn check_recycle_bin(report: &CheckReport, found: &mut Found) {
    for (key, value) in objects(report, RECYCLE_BIN_OBJECT) {
        if let Err(error) = decode::<BinRecord>(key, value) {
            found.push(("the recycle bin".to_owned(), why(error)));
        }
    }
}

/// Checks what the array notes for itself: events, the requests that it carried out, and scrubs.
fn check_notes(report: &CheckReport, found: &mut Found) {
    for kind in [EVENT_OBJECT, EVENT_LOG_OBJECT] {
        for (key, value) in objects(report, kind) {
            found.extend(log_problem(kind, key, value).map(|problem| (format!("event {key}"), problem)));
        }
    }
    for (key, value) in objects(report, REQUEST_OBJECT) {
        found.extend(
            request_problem(key, value).map(|problem| (format!("the note of request {key}"), problem)),
        );
    }
    for (key, value) in objects(report, REBUILD_OBJECT) {
        found.extend(rebuild_problem(key, value).map(|problem| ("the rebuild settings".to_owned(), problem)));
    }
    for (key, value) in objects(report, POLICY_OBJECT) {
        found.extend(policy_problem(key, value).map(|problem| (format!("policy {key}"), problem)));
    }
    for (key, value) in objects(report, QOS_OBJECT) {
        if Limited::of_key(key).is_none() {
            found.push((format!("limits {key}"), "what they limit is not known".to_owned()));
        }
        found
            .extend(decode::<QosRecord>(key, value).err().map(|error| (format!("limits {key}"), why(error))));
    }
    for (key, value) in objects(report, PORTAL_OBJECT) {
        found.extend(portal_problem(key, value).map(|problem| (format!("portal {key}"), problem)));
    }
    for (key, value) in objects(report, POOL_OBJECT) {
        found.extend(
            pool_settings_problem(key, value).map(|problem| ("the pool's settings".to_owned(), problem)),
        );
    }
    for (key, value) in objects(report, HISTORY_OBJECT) {
        found.extend(
            history_problem(key, value).map(|problem| (format!("the sample of hour {key}"), problem)),
        );
    }
    for (key, value) in objects(report, LEAVING_OBJECT) {
        found
            .extend(leaving_problem(key, value).map(|problem| (format!("drive {key} that leaves"), problem)));
    }
    for (key, value) in objects(report, SCRUB_OBJECT) {
        found.extend(
            scrub_problem(key, value).map(|problem| (format!("the object of scrubs, {key}"), problem)),
        );
    }
}

fn objects(report: &CheckReport, kind: ObjectKind) -> impl Iterator<Item = (&String, &Vec<u8>)> {
    report.objects.iter().filter(move |((k, _), _)| *k == kind).map(|((_, key), value)| (key, value))
}

fn why(error: ArrayError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::encode;
    use quoin_base::VolumeId;
    use quoin_volume::{COPY_OBJECT, VOLUME_OBJECT};

    fn report(objects: Vec<(ObjectKind, &str, Vec<u8>)>) -> CheckReport {
        let mut report = CheckReport::default();
        report.volume_ids.insert(VolumeId(1));
        let volume = r#"{"version":3,"id":1,"uuid":"da98f305-398b-4873-983c-da64de7c4480","name":"v1","size_bytes":8192,"block_bytes":512,"created_ms":0,"thick":false,"trim_end":0}"#;
        report.objects.insert((VOLUME_OBJECT, "1".into()), volume.as_bytes().to_vec());
        report.objects.insert((HOST_OBJECT, "h1".into()), host("h1", "iqn.2026-11.test:h1"));
        for (kind, key, value) in objects {
            report.objects.insert((kind, key.into()), value);
        }
        check_catalog(&mut report);
        report
    }

    fn host(name: &str, initiator: &str) -> Vec<u8> {
        encode(&HostRecord {
            name: name.into(),
            initiators: vec![initiator.into()],
            created_ms: 0,
            chap: None,
        })
    }

    fn schedule(name: &str, keep: u32) -> Vec<u8> {
        format!(
            r#"{{"version":1,"name":"{name}","source":{{"volume":1}},"rules":[{{"every":"daily","keep":{keep}}}],"at_minute":0,"retain_s":null,"paused":false,"created_ms":0,"served_ms":{{"daily":1}},"last_run_ms":null}}"#
        )
        .into_bytes()
    }

    fn reserve() -> Vec<u8> {
        br#"{"version":1,"percent":20,"bytes":null,"policy":"delete-oldest"}"#.to_vec()
    }

    fn mapping(host: &str, lun: u16, volume: u32) -> Vec<u8> {
        encode(&MappingRecord {
            host: host.into(),
            lun,
            volume: VolumeId(volume),
            read_only: false,
            writable: false,
        })
    }

    #[test]
    fn a_sound_catalog_is_clean_and_each_fault_is_named() {
        let sound = report(vec![
            (MAPPING_OBJECT, "h1/00001", mapping("h1", 1, 1)),
            (RESERVE_OBJECT, "snapshots", reserve()),
            (OWN_RESERVE_OBJECT, "volume/1", reserve()),
        ]);
        assert!(sound.is_clean(), "{:?}", sound.problems);
        // A volume in the recycle bin may have the name of another volume, and has no reservation.
        let deleted = r#"{"version":3,"id":1,"uuid":"da98f305-398b-4873-983c-da64de7c4481","name":"v1","size_bytes":8192,"block_bytes":512,"created_ms":0,"thick":true,"trim_end":0,"deleted":{"at_ms":1,"until_ms":2}}"#;
        let sound = report(vec![(VOLUME_OBJECT, "2", deleted.as_bytes().to_vec())]);
        assert!(sound.is_clean(), "{:?}", sound.problems);
        let volume = |id: u32, size: u64, name: &str| {
            format!(
                r#"{{"version":3,"id":{id},"uuid":"da98f305-398b-4873-983c-da64de7c4481","name":"{name}","size_bytes":{size},"block_bytes":512,"created_ms":0,"thick":false,"trim_end":0}}"#
            )
            .into_bytes()
        };
        for (kind, key, value, expected) in [
            (MAPPING_OBJECT, "h1/00001", mapping("h1", 1, 9), "mapping h1/00001: the pool has no volume 9"),
            (MAPPING_OBJECT, "h2/00001", mapping("h2", 1, 1), "mapping h2/00001: there is no host h2"),
            (MAPPING_OBJECT, "h1/00002", mapping("h1", 1, 1), "mapping h1/00002: it says host h1, LUN 1"),
            (MAPPING_OBJECT, "h1/00001", b"{}".to_vec(), "mapping h1/00001: "),
            (
                HOST_OBJECT,
                "h2",
                host("h2", "iqn.2026-11.test:h1"),
                "host h2: initiator iqn.2026-11.test:h1 belongs",
            ),
            (HOST_OBJECT, "h2", host("h3", "iqn.2026-11.test:h2"), "host h2: it calls itself h3"),
            (HOST_OBJECT, "h2", b"nonsense".to_vec(), "host h2: "),
            (SCHEDULE_OBJECT, "s", b"{}".to_vec(), "schedule s: "),
            (SCHEDULE_OBJECT, "s", schedule("t", 1), "schedule s: it calls itself t"),
            (SCHEDULE_OBJECT, "s", schedule("s", 0), "schedule s: daily:0 is not from 1"),
            (RESERVE_OBJECT, "snapshots", b"{}".to_vec(), "the snapshot reserve: "),
            (OWN_RESERVE_OBJECT, "volume/1", b"{}".to_vec(), "snapshot reserve volume/1: "),
            (OWN_RESERVE_OBJECT, "volume/9", reserve(), "volume/9: the pool has no volume 9"),
            (OWN_RESERVE_OBJECT, "group/x", reserve(), "group/x: it is of neither a volume nor a group"),
            (
                OWN_RESERVE_OBJECT,
                "group/da98f305-398b-4873-983c-da64de7c4480",
                reserve(),
                "there is no group da98f305-398b-4873-983c-da64de7c4480",
            ),
            (RECYCLE_BIN_OBJECT, "recycle-bin", b"{}".to_vec(), "the recycle bin: "),
            (EVENT_OBJECT, "7", b"nonsense".to_vec(), "event 7: "),
            (HISTORY_OBJECT, "7", b"nonsense".to_vec(), "the sample of hour 7: "),
            (SCRUB_OBJECT, "scrub", b"nonsense".to_vec(), "the object of scrubs, scrub: "),
            (COPY_OBJECT, "9", b"nonsense".to_vec(), "copy object 9: "),
            (VOLUME_OBJECT, "2", b"nonsense".to_vec(), "volume object 2: "),
            (VOLUME_OBJECT, "2", volume(2, 8192, "v2"), "volume v2: the pool has no volume 2"),
            (VOLUME_OBJECT, "2", volume(1, 8192, "v1"), "volume v1: two volumes have this name"),
            (VOLUME_OBJECT, "1", volume(1, 100, "v1"), "volume v1: volume v1: a size of 100 bytes"),
            (VOLUME_OBJECT, "1", volume(3, 8192, "v1"), "volume 1 of the pool: no object"),
        ] {
            let found: Vec<_> =
                report(vec![(kind, key, value)]).problems.iter().map(ToString::to_string).collect();
            assert!(found.iter().any(|p| p.contains(expected)), "nothing names {expected:?}: {found:?}");
        }
    }
}
