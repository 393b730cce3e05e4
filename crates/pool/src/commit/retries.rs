//! Blocks that destage tries again.

use quoin_base::Sequence;
use quoin_world::Nanos;

/// A block that could not be put together, because a drive failed to read a part of it.
pub(crate) struct Unread {
    pub tries: u32,
    pub since: Nanos,
    /// The newest sequence in it when it was tried last.
    pub newest: Sequence,
}

impl Unread {
    pub(super) fn new(since: Nanos) -> Self {
        Self { tries: 0, since, newest: Sequence(0) }
    }
}
