//! What all tasks of a boot have in common.

use crate::{model::Model, scenario::Boot, totals::Totals};
use parking_lot::Mutex;
use quoin_array::Array;
use quoin_world_sim::SimWorld;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Where the violation of one of many tasks is put.
pub(crate) type Violation = Mutex<Option<String>>;

/// What all tasks of a boot have in common.
pub(crate) struct Shared {
    pub world: Arc<SimWorld>,
    pub array: Arc<Array>,
    pub model: Arc<Mutex<Model>>,
    pub totals: Arc<Mutex<Totals>>,
    pub violation: Violation,
    /// Somebody met a violation: all others stop.
    pub stop: AtomicBool,
    /// The array is being stopped.
    pub stopping: AtomicBool,
    pub boot: Boot,
}

impl Shared {
    /// Notes a violation, if it is the first.
    pub(crate) fn violated(&self, what: String) {
        self.violation.lock().get_or_insert(what);
        self.stop.store(true, Ordering::Relaxed);
    }
}
