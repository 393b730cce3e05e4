//! Keeping writers out of volumes while something is changed that they rely on.
//!
//! Invariant: while a [`Fence`] stands, no write, unmap or step of a copy is under way in its volumes. A change that is
//! made behind it therefore never falls into the middle of a request, however many records that request takes.

use crate::Volume;
use quoin_pool::bugs::{Bug, planted};
use std::sync::Arc;

/// Volumes whose gates are closed until this is dropped.
#[must_use]
pub(crate) struct Fence {
    volumes: Vec<Arc<Volume>>,
    /// How many of them are closed, or about to be.
    closed: usize,
}

impl Fence {
    /// Closes the gates of volumes; returns once no writer is inside any of them.
    pub(crate) async fn close(volumes: Vec<Arc<Volume>>) -> Self {
        let mut fence = Self { volumes, closed: 0 };
        while let Some(volume) = fence.volumes.get(fence.closed).cloned() {
            // Noted first: a caller that gives up while it waits opens this one too.
            fence.closed += 1;
            volume.gate.close().await;
        }
        fence
    }

    /// The same for volumes that become immutable or templates.
    pub(crate) async fn freeze(volumes: &[Arc<Volume>]) -> Self {
        Self::close(if planted(Bug::GateLeftOpen) { Vec::new() } else { volumes.to_vec() }).await
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.volumes[..self.closed].iter().for_each(|volume| volume.gate.open());
    }
}
