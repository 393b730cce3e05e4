//! Limits of IOPS and bandwidth, as management sets them: what applies to which volume, and what becomes of it.

use crate::lab::{Lab, create, newest};
use quoin_api::{Deletion, GroupCreate, PolicyCreate, Qos, QosScope, QosSet, VolumeCreate, VolumeUpdate};
use quoin_array::{Array, ArrayError, QosError, QosOf};
use quoin_volume::BlockDevice;
use serde_json::{from_value, json};

fn volume(name: &str) -> QosOf {
    QosOf::Volume(name.to_owned())
}

fn iops(iops: u64) -> Option<QosSet> {
    Some(QosSet { iops: Some(iops), bytes_per_s: None, burst_ms: 100 })
}

/// The volumes that are limited in any way.
fn limited(array: &Array) -> Vec<String> {
    let is_limited = |name: &String| array.volume(name).unwrap().throttle().unwrap().is_limited();
    array.list_volumes().unwrap().into_iter().map(|volume| volume.name).filter(is_limited).collect()
}

fn set(array: &Array) -> Vec<(QosScope, String, Option<u64>)> {
    let row = |qos: Qos| (qos.scope, qos.name, qos.iops);
    array.list_qos().unwrap().into_iter().map(row).collect()
}

#[test]
fn limits_are_told_of_kept_and_hold_after_a_restart() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        array.create_volume(create("v1")).await.unwrap();
        array.create_volume(create("v2")).await.unwrap();
        let both = QosSet { iops: Some(500), bytes_per_s: Some(8 << 20), burst_ms: 2000 };
        let shown = array.set_qos(&volume("v1"), Some(both)).await.unwrap();
        assert_eq!((shown.iops, shown.bytes_per_s, shown.burst_ms), (Some(500), Some(8 << 20), Some(2000)));
        let (text, told) = newest(&array, "iops");
        assert_eq!(text, "limited to 500 IOPS and 8388608 bytes/s, bursts of 2000 ms");
        assert_eq!(told, Some((json!(null), json!(500))));
        // What cannot be changes nothing.
        let refused = array.set_qos(&volume("v1"), iops(9)).await.unwrap_err();
        assert!(matches!(refused, ArrayError::Qos(QosError::Iops { least: 10, .. })), "{refused}");
        assert!(array.set_qos(&volume("v9"), iops(100)).await.is_err());
    });
    assert_eq!(limited(&array), ["v1"]);
    lab.stop(array);
    let array = lab.start();
    assert_eq!(limited(&array), ["v1"]);
    lab.on_array(&array, async |array| {
        array.set_qos(&volume("v1"), None).await.unwrap();
        assert_eq!(newest(&array, "iops").0, "no longer limited");
    });
    assert_eq!((limited(&array), set(&array)), (Vec::new(), Vec::new()));
    lab.stop(array);
}

#[test]
fn volumes_follow_their_groups_and_policies() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        let gold: PolicyCreate = from_value(json!({ "name": "gold", "reservation": "thin" })).unwrap();
        array.create_policy(gold).await.unwrap();
        array.set_qos(&QosOf::Policy("gold".into()), iops(1000)).await.unwrap();
        for name in ["a", "b", "c"] {
            array.create_volume(create(name)).await.unwrap();
        }
        assert_eq!(limited(&array), [""; 0]);
        // A new volume, and one that gets the policy later.
        array.create_volume(VolumeCreate { policy: Some("gold".into()), ..create("d") }).await.unwrap();
        let to = |policy: &str| VolumeUpdate { policy: Some(policy.into()), ..VolumeUpdate::default() };
        array.change_volume("a", to("gold")).await.unwrap();
        assert_eq!(limited(&array), ["a", "d"]);
        // A group, and who joins and leaves it.
        array.create_group(GroupCreate { name: "g".into(), volumes: vec!["b".into()] }).await.unwrap();
        array.set_qos(&QosOf::Group("g".into()), iops(2000)).await.unwrap();
        assert_eq!(limited(&array), ["a", "b", "d"]);
        array.add_to_group("g", "c").await.unwrap();
        array.add_to_group("g", "a").await.unwrap();
        array.remove_from_group("g", "b").await.unwrap();
        assert_eq!(limited(&array), ["a", "c", "d"]);
        assert_eq!(array.show_qos(&volume("a")).unwrap().others, ["group g", "policy gold"]);
        array.change_volume("a", to("default")).await.unwrap();
        array.delete_group("g").await.unwrap();
        assert_eq!(limited(&array), ["d"]);
        // The default policy limits those that have no other.
        array.set_qos(&QosOf::Policy("default".into()), iops(5000)).await.unwrap();
        assert_eq!(limited(&array), ["a", "b", "c", "d"]);
        array.set_qos(&QosOf::Policy("default".into()), None).await.unwrap();
        array.set_qos(&volume("d"), iops(100)).await.unwrap();
        array.delete_volume("d", Deletion { unmap: true, force: true, now: true }).await.unwrap();
        assert_eq!(set(&array), [(QosScope::Policy, "gold".to_owned(), Some(1000))]);
        array.delete_policy("gold").await.unwrap();
        assert_eq!((limited(&array), set(&array)), (Vec::new(), Vec::new()));
    });
    lab.stop(array);
}
