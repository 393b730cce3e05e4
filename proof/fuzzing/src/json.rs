//! Bodies of management requests.

use crate::Target;
use quoin_api::{HostCreate, MappingCreate, Problem, ProblemKind, VolumeCreate};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// A body.
pub(crate) const BODIES: Target = Target {
    name: "rest_bodies",
    about: "a byte that says of which request, then its JSON body",
    run,
    seeds,
    words: || {
        [
            r#""name":"#,
            r#""size_bytes":"#,
            r#""block_bytes":"#,
            r#""initiators":["#,
            r#""volume":"#,
            r#""lun":"#,
            r#"null"#,
            r#"18446744073709551615"#,
        ]
        .map(|word| word.as_bytes().to_vec())
        .to_vec()
    },
    mutations: 3000,
};

fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => body::<VolumeCreate>(bytes),
        1 => body::<HostCreate>(bytes),
        2 => body::<MappingCreate>(bytes),
        _ => body::<Problem>(bytes),
    }
}

fn body<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) {
    let body: T = match serde_json::from_slice(bytes) {
        Ok(body) => body,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let again = serde_json::to_vec(&body).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<T>(&again).ok(), Some(body), "it changes when it is written again");
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let with = |kind: u8, json: &str| [&[kind], json.as_bytes()].concat();
    let problem = Problem::new(
        ProblemKind::Exists,
        "volume not created",
        "volume v1",
        "v1 exists",
        "take another name",
    );
    let problem = serde_json::to_string(&problem).unwrap_or_default();
    vec![
        ("volume", with(0, r#"{"name":"db-1","size_bytes":1073741824,"block_bytes":512}"#)),
        ("host", with(1, r#"{"name":"h1","initiators":["iqn.2026-11.test:i"]}"#)),
        ("mapping", with(2, r#"{"volume":"db-1","host":"h1","lun":3}"#)),
        ("problem", with(3, &problem)),
    ]
}
