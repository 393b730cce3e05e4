//! How what is written to volumes is compressed, as management says it: for a volume itself, and by policies.

use crate::lab::{Lab, create, newest};
use quoin_api::{
    CloneCreate, Compliance, ComplianceState, Compression, PolicyCompression, PolicyCreate, PolicyUpdate,
    Reservation, SnapshotCreate, VolumeCreate, VolumeUpdate,
};
use quoin_array::{Array, EventSelection, POLICY_OBJECT};
use quoin_pool::Transaction;
use serde_json::{from_value, json};

/// The field of events.
const WHAT: &str = "compression";

fn policy(name: &str, compression: PolicyCompression) -> PolicyCreate {
    PolicyCreate { compression, ..from_value(json!({ "name": name })).unwrap() }
}

fn with(name: &str, policy: Option<&str>, compression: Option<Compression>) -> VolumeCreate {
    VolumeCreate { compression, policy: policy.map(str::to_owned), ..create(name) }
}

fn to(compression: Compression) -> VolumeUpdate {
    VolumeUpdate { compression: Some(compression), ..VolumeUpdate::default() }
}

fn says(compression: PolicyCompression) -> PolicyUpdate {
    PolicyUpdate { compression: Some(compression), ..PolicyUpdate::default() }
}

/// What each volume has, and whether its policy agrees.
fn all(array: &Array) -> Vec<(String, Compression, ComplianceState)> {
    let volumes = array.list_volumes().unwrap().into_iter();
    volumes.map(|v| (v.name, v.compression.unwrap(), v.compliance.unwrap().state)).collect()
}

#[test]
fn a_volume_is_compressed_as_it_is_told_and_told_of_over_a_restart() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        assert_eq!(array.create_volume(create("v1")).await.unwrap().compression, Some(Compression::Off));
        let made = array.create_volume(with("v2", None, Some(Compression::Lz4))).await.unwrap();
        assert_eq!(made.compression, Some(Compression::Lz4));
        let (text, told) = newest(&array, WHAT);
        assert_eq!(text, "created, thin, compressed with lz4, 1073741824 bytes in blocks of 512");
        assert_eq!(told, Some((json!(null), json!("lz4"))));
        let set = array.change_volume("v1", to(Compression::Zstd)).await.unwrap();
        assert_eq!(set.compression, Some(Compression::Zstd));
        let changed = ("compressed with zstd from now on".to_owned(), Some((json!("off"), json!("zstd"))));
        assert_eq!(newest(&array, WHAT), changed);
        // Nothing changes, and nothing is told.
        let before = array.events(EventSelection::default()).len();
        array.change_volume("v1", to(Compression::Zstd)).await.unwrap();
        assert_eq!(array.events(EventSelection::default()).len(), before);
        array.change_volume("v2", to(Compression::Off)).await.unwrap();
        assert_eq!(newest(&array, WHAT).0, "not compressed from now on");
    });
    let before = all(&array);
    let compliant = ComplianceState::Compliant;
    let expected = [("v1", Compression::Zstd, compliant), ("v2", Compression::Off, compliant)];
    assert_eq!(before, expected.map(|(name, compression, state)| (name.to_owned(), compression, state)));
    lab.stop(array);
    let array = lab.start();
    assert_eq!(all(&array), before);
    lab.stop(array);
}

#[test]
fn a_policy_compresses_its_volumes_unless_they_say_otherwise_themselves() {
    let lab = Lab::new();
    let array = lab.start();
    let (off, lz4, zstd) = (Compression::Off, Compression::Lz4, Compression::Zstd);
    let (good, differs) = (ComplianceState::Compliant, ComplianceState::Differs);
    lab.on_array(&array, async move |array| {
        // With compression alone it has the layout of the pool; with nothing at all it is none.
        assert!(array.create_policy(policy("none", PolicyCompression::Any)).await.is_err());
        let made = array.create_policy(policy("gold", PolicyCompression::Lz4)).await.unwrap();
        assert_eq!((made.layout.as_str(), made.compression), ("none", PolicyCompression::Lz4));
        assert_eq!(made.reservation, Reservation::Any);
        let (text, told) = newest(&array, WHAT);
        assert!(text.starts_with("created: layout none"), "{text}");
        assert!(text.ends_with(", volumes are compressed with lz4"), "{text}");
        assert_eq!(told, Some((json!(null), json!("lz4"))));
        // New volumes, those that get it, and what they say themselves.
        array.create_volume(with("a", Some("gold"), None)).await.unwrap();
        array.create_volume(with("b", Some("gold"), Some(zstd))).await.unwrap();
        array.create_volume(create("c")).await.unwrap();
        let snapshot: SnapshotCreate = from_value(json!({ "volume": "c", "name": "s" })).unwrap();
        array.create_snapshot(snapshot).await.unwrap();
        let gold = VolumeUpdate { policy: Some("gold".into()), ..VolumeUpdate::default() };
        array.change_volume("c", gold).await.unwrap();
        let (text, told) = newest(&array, WHAT);
        assert!(text.starts_with("compressed with lz4 from now on; given policy gold"), "{text}");
        assert_eq!(told, Some((json!("off"), json!("lz4"))));
        // A clone is as its policy says, also one of a snapshot that is not.
        let clone: CloneCreate = from_value(json!({ "name": "d" })).unwrap();
        array.clone_volume("s", clone).await.unwrap();
        let expected =
            [("a", lz4, good), ("b", zstd, differs), ("c", lz4, good), ("s", off, good), ("d", lz4, good)];
        assert_eq!(all(&array), expected.map(|(name, way, state)| (name.to_owned(), way, state)));
        let Compliance { compression, .. } = array.show_volume("b").unwrap().compliance.unwrap();
        assert_eq!(compression, PolicyCompression::Lz4);
        assert_eq!(array.show_policy("gold").unwrap().differing, 1);
    });
    lab.on_array(&array, async move |array| {
        // Something else of the policy is changed: what was made otherwise stays so.
        let thin = PolicyUpdate { reservation: Some(Reservation::Thin), ..PolicyUpdate::default() };
        array.change_policy("gold", thin).await.unwrap();
        assert_eq!(array.show_volume("b").unwrap().compression, Some(zstd));
        // Its compression is: all of its volumes, at once.
        array.change_policy("gold", says(PolicyCompression::Off)).await.unwrap();
        let (text, told) = newest(&array, WHAT);
        assert!(text.contains(", volumes are thin, volumes are not compressed; its"), "{text}");
        assert_eq!(told, Some((json!("lz4"), json!("off"))));
        assert!(all(&array).iter().all(|(_, compression, state)| (*compression, *state) == (off, good)));
        array.change_volume("a", to(lz4)).await.unwrap();
        assert_eq!(array.show_volume("a").unwrap().compliance.unwrap().state, differs);
        array.change_policy("gold", says(PolicyCompression::Zstd)).await.unwrap();
        array.change_volume("d", to(lz4)).await.unwrap();
    });
    let before = all(&array);
    let expected =
        [("a", zstd, good), ("b", zstd, good), ("c", zstd, good), ("s", off, good), ("d", lz4, differs)];
    assert_eq!(before, expected.map(|(name, way, state)| (name.to_owned(), way, state)));
    lab.stop(array);
    let array = lab.start();
    assert_eq!(all(&array), before);
    let policy = array.show_policy("gold").unwrap();
    assert_eq!((policy.compression, policy.reservation), (PolicyCompression::Zstd, Reservation::Thin));
    lab.on_array(&array, async move |array| {
        // One that does not say any more leaves them as they are, and nobody differs.
        array.change_policy("gold", says(PolicyCompression::Any)).await.unwrap();
        assert_eq!(array.show_volume("d").unwrap().compression, Some(lz4));
        assert_eq!(array.show_policy("gold").unwrap().differing, 0);
    });
    lab.stop(array);
}

#[test]
fn a_policy_that_was_recorded_before_there_was_compression_says_nothing_of_it() {
    let lab = Lab::new();
    lab.with_pool(async |pool| {
        let old = br#"{"version":1,"name":"old","layout":"none","created_ms":7}"#.to_vec();
        pool.commit(Transaction::new().put(POLICY_OBJECT, "old", old)).await.unwrap();
    });
    let array = lab.start();
    assert_eq!(array.show_policy("old").unwrap().compression, PolicyCompression::Any);
    lab.on_array(&array, async |array| {
        array.create_volume(with("v1", Some("old"), Some(Compression::Zstd))).await.unwrap();
        assert_eq!(array.show_policy("old").unwrap().differing, 0);
    });
    lab.stop(array);
}
