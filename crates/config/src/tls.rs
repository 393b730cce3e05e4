//! Whether NBD over TCP is encrypted.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Whether connections over TCP are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsSetting {
    /// Not offered.
    Off,
    /// Offered, and not asked for.
    Optional,
    /// Asked for.
    Required,
}
