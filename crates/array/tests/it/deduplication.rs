//! Whether what is written to volumes is deduplicated, as management says it: for a volume itself, and by policies.

use crate::lab::{Lab, create, newest};
use quoin_api::{
    CloneCreate, ComplianceState, Compression, Deduplication, PolicyCreate, PolicyDeduplication,
    PolicyUpdate, SnapshotCreate, VolumeCreate, VolumeUpdate,
};
use quoin_array::{Array, EventSelection, POLICY_OBJECT};
use quoin_pool::Transaction;
use serde_json::{from_value, json};

/// The field of events.
const WHAT: &str = "deduplication";
const OFF: Deduplication = Deduplication::Off;
const ON: Deduplication = Deduplication::On;
const GOOD: ComplianceState = ComplianceState::Compliant;
const DIFFERS: ComplianceState = ComplianceState::Differs;

fn policy(name: &str, deduplication: PolicyDeduplication) -> PolicyCreate {
    PolicyCreate { deduplication, ..from_value(json!({ "name": name })).unwrap() }
}

fn with(name: &str, policy: Option<&str>, deduplication: Option<Deduplication>) -> VolumeCreate {
    VolumeCreate { deduplication, policy: policy.map(str::to_owned), ..create(name) }
}

fn to(deduplication: Deduplication) -> VolumeUpdate {
    VolumeUpdate { deduplication: Some(deduplication), ..VolumeUpdate::default() }
}

fn says(deduplication: PolicyDeduplication) -> PolicyUpdate {
    PolicyUpdate { deduplication: Some(deduplication), ..PolicyUpdate::default() }
}

/// What each volume has, and whether its policy agrees.
fn all(array: &Array) -> Vec<(String, Deduplication, ComplianceState)> {
    let volumes = array.list_volumes().unwrap().into_iter();
    volumes.map(|v| (v.name, v.deduplication.unwrap(), v.compliance.unwrap().state)).collect()
}

fn expected<const N: usize>(
    volumes: [(&str, Deduplication, ComplianceState); N],
) -> Vec<(String, Deduplication, ComplianceState)> {
    volumes.map(|(name, deduplication, state)| (name.to_owned(), deduplication, state)).into()
}

#[test]
fn a_volume_is_deduplicated_as_it_is_told_and_told_of_over_a_restart() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        assert_eq!(array.create_volume(create("v1")).await.unwrap().deduplication, Some(OFF));
        let both = VolumeCreate { compression: Some(Compression::Lz4), ..with("v2", None, Some(ON)) };
        assert_eq!(array.create_volume(both).await.unwrap().deduplication, Some(ON));
        let (text, told) = newest(&array, WHAT);
        let kind = "thin, compressed with lz4, deduplicated";
        assert_eq!(text, format!("created, {kind}, 1073741824 bytes in blocks of 512"));
        assert_eq!(told, Some((json!(null), json!("on"))));
        assert_eq!(array.change_volume("v1", to(ON)).await.unwrap().deduplication, Some(ON));
        let changed = ("deduplicated from now on".to_owned(), Some((json!("off"), json!("on"))));
        assert_eq!(newest(&array, WHAT), changed);
        // Nothing changes, and nothing is told.
        let before = array.events(EventSelection::default()).len();
        array.change_volume("v1", to(ON)).await.unwrap();
        assert_eq!(array.events(EventSelection::default()).len(), before);
        let set = array.change_volume("v2", to(OFF)).await.unwrap();
        assert_eq!((set.deduplication, set.compression), (Some(OFF), Some(Compression::Lz4)));
        assert_eq!(newest(&array, WHAT).0, "not deduplicated from now on");
    });
    let before = all(&array);
    assert_eq!(before, expected([("v1", ON, GOOD), ("v2", OFF, GOOD)]));
    lab.stop(array);
    let array = lab.start();
    assert_eq!(all(&array), before);
    lab.stop(array);
}

#[test]
fn a_policy_deduplicates_its_volumes_unless_they_say_otherwise_themselves() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async move |array| {
        // With deduplication alone it has the layout of the pool.
        let made = array.create_policy(policy("gold", PolicyDeduplication::On)).await.unwrap();
        assert_eq!((made.layout.as_str(), made.deduplication), ("none", PolicyDeduplication::On));
        let (text, told) = newest(&array, WHAT);
        assert!(text.ends_with(", volumes are deduplicated"), "{text}");
        assert_eq!(told, Some((json!(null), json!("on"))));
        // New volumes, those that get it, and what they say themselves.
        array.create_volume(with("a", Some("gold"), None)).await.unwrap();
        array.create_volume(with("b", Some("gold"), Some(OFF))).await.unwrap();
        array.create_volume(create("c")).await.unwrap();
        let snapshot: SnapshotCreate = from_value(json!({ "volume": "c", "name": "s" })).unwrap();
        array.create_snapshot(snapshot).await.unwrap();
        let gold = VolumeUpdate { policy: Some("gold".into()), ..VolumeUpdate::default() };
        array.change_volume("c", gold).await.unwrap();
        let (text, told) = newest(&array, WHAT);
        assert!(text.starts_with("deduplicated from now on; given policy gold"), "{text}");
        assert_eq!(told, Some((json!("off"), json!("on"))));
        // A clone is as its policy says, also one of a snapshot that is not.
        let clone: CloneCreate = from_value(json!({ "name": "d" })).unwrap();
        array.clone_volume("s", clone).await.unwrap();
        let volumes =
            [("a", ON, GOOD), ("b", OFF, DIFFERS), ("c", ON, GOOD), ("s", OFF, GOOD), ("d", ON, GOOD)];
        assert_eq!(all(&array), expected(volumes));
        let said = array.show_volume("b").unwrap().compliance.unwrap().deduplication;
        assert_eq!(said, PolicyDeduplication::On);
        assert_eq!(array.show_policy("gold").unwrap().differing, 1);
    });
    lab.on_array(&array, async move |array| {
        // Its deduplication is changed: all of its volumes, at once.
        array.change_policy("gold", says(PolicyDeduplication::Off)).await.unwrap();
        let (text, told) = newest(&array, WHAT);
        assert!(text.contains(", volumes are not deduplicated; its"), "{text}");
        assert_eq!(told, Some((json!("on"), json!("off"))));
        assert!(all(&array).iter().all(|(_, deduplication, state)| (*deduplication, *state) == (OFF, GOOD)));
        array.change_policy("gold", says(PolicyDeduplication::On)).await.unwrap();
        array.change_volume("d", to(OFF)).await.unwrap();
    });
    let before = all(&array);
    let volumes = [("a", ON, GOOD), ("b", ON, GOOD), ("c", ON, GOOD), ("s", OFF, GOOD), ("d", OFF, DIFFERS)];
    assert_eq!(before, expected(volumes));
    lab.stop(array);
    let array = lab.start();
    assert_eq!(all(&array), before);
    assert_eq!(array.show_policy("gold").unwrap().deduplication, PolicyDeduplication::On);
    lab.on_array(&array, async move |array| {
        // One that does not say any more leaves them as they are, and nobody differs.
        array.change_policy("gold", says(PolicyDeduplication::Any)).await.unwrap();
        assert_eq!(array.show_volume("d").unwrap().deduplication, Some(OFF));
        assert_eq!(array.show_policy("gold").unwrap().differing, 0);
    });
    lab.stop(array);
}

#[test]
fn a_policy_that_was_recorded_before_there_was_deduplication_says_nothing_of_it() {
    let lab = Lab::new();
    lab.with_pool(async |pool| {
        let old =
            br#"{"version":1,"name":"old","layout":"none","compression":"lz4","created_ms":7}"#.to_vec();
        pool.commit(Transaction::new().put(POLICY_OBJECT, "old", old)).await.unwrap();
    });
    let array = lab.start();
    assert_eq!(array.show_policy("old").unwrap().deduplication, PolicyDeduplication::Any);
    lab.on_array(&array, async |array| {
        array.create_volume(with("v1", Some("old"), Some(ON))).await.unwrap();
        assert_eq!(array.show_policy("old").unwrap().differing, 0);
    });
    lab.stop(array);
}
