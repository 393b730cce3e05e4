//! What was reported of absent drives, and when they were looked for.

use crate::told_unreadable::ToldUnreadable;
use quoin_base::DriveIndex;
use quoin_world::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Drives that were reported as absent, and how they were looked for.
#[derive(Default)]
pub(crate) struct Absences {
    pub(crate) reported: BTreeSet<DriveIndex>,
    pub(crate) searched: Option<Nanos>,
    /// When it was last tried to take back one that can be read and answered with errors.
    pub(crate) tried: BTreeMap<DriveIndex, Nanos>,
    /// Why one that was found was not taken back, as it was reported.
    pub(crate) refused: BTreeMap<DriveIndex, String>,
    pub(crate) unreadable: ToldUnreadable,
}
