//! A snapshot reserve while it is set, and what it may delete meanwhile.

use crate::vol::Named;
use quoin_api::ReservePolicy;
use quoin_array::ReserveOf;
use std::collections::{BTreeMap, BTreeSet};

/// A reserve from before it is set until it is removed.
#[derive(Clone, Debug)]
pub(crate) struct Episode {
    pub of: ReserveOf,
    pub policy: ReservePolicy,
    /// The snapshots that it limits, what they were taken of, and what else may go with them.
    pub claimed: Vec<Named>,
    /// The names of snapshots that it limits, and of those that are in a set with one.
    pub snapshots: BTreeSet<String>,
    /// Sets of snapshots that go together or not at all.
    pub sets: Vec<BTreeSet<String>>,
    /// For each volume that was deleted, by number: how often it was touched, and its newest snapshots.
    pub last_of: BTreeMap<u32, (u32, BTreeSet<String>)>,
}
