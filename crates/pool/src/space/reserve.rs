//! What a transaction changes about reservations.

use quoin_base::{Layout, VolumeId};
use std::collections::BTreeMap;

/// What volumes shall have reserved by a transaction that is not hardened yet.
pub(crate) type Pledged = BTreeMap<VolumeId, VolumePledge>;

/// What a transaction changes about a volume's reservation.
#[derive(Clone, Copy, Default)]
pub(crate) struct VolumePledge {
    /// `None`: as many as before.
    pub blocks: Option<u64>,
    /// It is forked: all it has will be shared, and what is promised must be there once more.
    pub shared: bool,
    /// `None`: it keeps its layout. `Some(None)`: it gets the pool's.
    pub layout: Option<Option<Layout>>,
}
