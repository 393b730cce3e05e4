//! Policies: named objects that say what the array does for the volumes that have them: how their data is laid out, whether
//! space is kept for all of them, and whether what is written to them is compressed, how, and deduplicated.
//!
//! A volume's record names its policy. What follows from a policy is told to the pool in the transaction that assigns or
//! changes it, so the two never differ. The pool converts what volumes have, and knows how far that is.

use crate::{
    ArrayError,
    progress::Progress,
    record::{POLICY_OBJECT, decode, encode},
};
use quoin_api::{Compression, Deduplication, PolicyCompression, PolicyDeduplication, Reservation};
use quoin_base::{Layout, VolumeId};
use quoin_pool::Transaction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod manage;

/// A policy as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyRecord {
    name: String,
    layout: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    force_provisioning: bool,
    /// Whether its volumes are thick; `None`: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thick: Option<bool>,
    /// How what is written to its volumes is compressed; `None`: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compression: Option<Compression>,
    /// Whether what is written to its volumes is deduplicated; `None`: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deduplication: Option<Deduplication>,
    created_ms: u64,
}

/// The policies, and how far conversions are.
#[derive(Default)]
pub(crate) struct Policies {
    by_name: BTreeMap<String, PolicyRecord>,
    converting: BTreeMap<VolumeId, Progress>,
}

/// The problem of the object of a policy, if it has one.
pub(crate) fn policy_problem(key: &str, bytes: &[u8]) -> Option<String> {
    match decode::<PolicyRecord>(key, bytes) {
        Ok(record) if record.name != key => Some(format!("it calls itself {}", record.name)),
        Ok(record) => record.layout.parse::<Layout>().err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

impl PolicyRecord {
    fn layout(&self) -> Result<Layout, ArrayError> {
        let bad = |why: String| ArrayError::Record { key: self.name.clone(), why };
        self.layout.parse().map_err(|error: quoin_base::NoLayout| bad(error.to_string()))
    }

    fn reservation(&self) -> Reservation {
        manage::reservation(self.thick)
    }

    fn compression(&self) -> PolicyCompression {
        self.compression.into()
    }

    fn deduplication(&self) -> PolicyDeduplication {
        self.deduplication.into()
    }

    fn put(&self, tx: Transaction) -> Transaction {
        tx.put(POLICY_OBJECT, &self.name, encode(self))
    }
}
