//! What lets a volume mark itself in the catalog.

use quoin_world::{AsyncMutex, World};
use std::sync::Arc;

/// The state that a volume needs to mark itself as modified.
#[derive(Clone)]
pub(crate) struct Marking {
    pub(crate) world: Arc<dyn World>,
    /// The turn to change volumes.
    pub(crate) changes: Arc<AsyncMutex>,
}
