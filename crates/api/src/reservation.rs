//! SCSI reservations: what hosts have reserved of volumes, as clusters do to fence their nodes.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The type of a persistent reservation: what it lets others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationType {
    /// The holder writes, all read.
    WriteExclusive,
    /// The holder reads and writes.
    ExclusiveAccess,
    /// Who is registered writes, all read.
    WriteExclusiveRegistrantsOnly,
    /// Who is registered reads and writes.
    ExclusiveAccessRegistrantsOnly,
    /// Who is registered writes and holds it, all read.
    WriteExclusiveAllRegistrants,
    /// Who is registered reads, writes and holds it.
    ExclusiveAccessAllRegistrants,
}

impl fmt::Display for ReservationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WriteExclusive => "write exclusive",
            Self::ExclusiveAccess => "exclusive access",
            Self::WriteExclusiveRegistrantsOnly => "write exclusive, registrants only",
            Self::ExclusiveAccessRegistrantsOnly => "exclusive access, registrants only",
            Self::WriteExclusiveAllRegistrants => "write exclusive, all registrants",
            Self::ExclusiveAccessAllRegistrants => "exclusive access, all registrants",
        })
    }
}

/// A registration of an initiator, through one target port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Registration {
    /// The initiator's name.
    #[schema(example = "iqn.2026-11.test:h1")]
    pub initiator: String,
    /// The host that the initiator belongs to; null if it belongs to none.
    pub host: Option<String>,
    /// The identifier of the initiator's session (ISID), in hexadecimal.
    #[schema(example = "0x00023d000001")]
    pub isid: String,
    /// The target portal group of the portal through which it registered.
    #[schema(example = 1)]
    pub portal_group: u16,
    /// The reservation key, in hexadecimal.
    #[schema(example = "0x1")]
    pub key: String,
    /// Whether it holds the reservation.
    pub holder: bool,
    /// Whether a session of it is logged in.
    pub connected: bool,
}

/// What hosts have reserved of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reservations {
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// The type of the persistent reservation; null if there is none.
    pub reservation: Option<ReservationType>,
    /// Whether registrations and the persistent reservation survive a restart, as the host that registered last has asked
    /// for (APTPL).
    pub persists: bool,
    /// Counts changes of registrations since the array started (PRGENERATION).
    pub generation: u32,
    /// Who is registered.
    pub registrations: Vec<Registration>,
    /// The initiator that has the volume by RESERVE, the command of SCSI-2; null if none has.
    pub reserved_by: Option<String>,
    /// What survived a restart cannot be read, so no host may read or write until one registers anew (REGISTER AND IGNORE
    /// EXISTING KEY), or until it is cleared.
    pub unreadable: bool,
}
