//! iSCSI portals: addresses at which hosts reach the array.

use crate::Session;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// A portal to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalCreate {
    /// An IP address of the array's machine, with a port; without a port it is 3260.
    #[schema(example = "10.0.1.5:3260")]
    pub address: String,
}

/// A change of a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalUpdate {
    /// Whether connections are accepted at it.
    pub enabled: bool,
    /// Disable it although initiators are logged in through it.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

/// Whether hosts reach the array at a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortalState {
    /// Connections are accepted.
    Up,
    /// The array cannot listen at the address. It tries again every few seconds.
    Down,
    /// The array does not listen at the address, because it was told so.
    Disabled,
}

impl fmt::Display for PortalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Disabled => "disabled",
        })
    }
}

/// A portal: a target port of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Portal {
    /// Its address; 0.0.0.0 and :: stand for all addresses of the array's machine.
    #[schema(example = "10.0.1.5:3260")]
    pub address: String,
    /// The tag of its target portal group, which is its relative target port identifier, too.
    #[schema(example = 2)]
    pub portal_group: u16,
    /// Whether hosts reach the array there.
    pub state: PortalState,
    /// Why the array cannot listen at the address; null if it can.
    pub problem: Option<String>,
    /// Whether --iscsi or quoin.toml names it. Such a portal can be disabled, but not deleted.
    pub configured: bool,
    /// When it was created, or first configured, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// The sessions of initiators that logged in through it.
    pub sessions: Vec<Session>,
}
