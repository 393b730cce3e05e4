//! What lets a volume mark itself in the catalog, and have images made of itself.

use crate::image::Images;
use quoin_world::{AsyncMutex, World};
use std::sync::Arc;

/// The state that a volume needs to mark itself as modified, and to have images.
#[derive(Clone)]
pub(crate) struct Marking {
    pub(crate) world: Arc<dyn World>,
    /// The turn to change volumes.
    pub(crate) changes: Arc<AsyncMutex>,
    pub(crate) images: Arc<Images>,
}
