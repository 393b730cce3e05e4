//! Reservations as the unit's device keeps them over a restart (APTPL).

use super::{ItNexus, Persistent, Reservations};
use quoin_scsi::ReservationType;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    registrants: Vec<KeptRegistrant>,
    /// The code of the reservation's type, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptRegistrant {
    initiator: String,
    isid: [u8; 6],
    port: u16,
    key: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    holds: bool,
}

impl Reservations {
    /// What is to be kept; `None` if nothing is to survive.
    pub(crate) fn to_keep(&self) -> Option<Vec<u8>> {
        if !self.is_kept || self.registrants.is_empty() {
            return None;
        }
        let registrant = |(nexus, key): (&ItNexus, &u64)| KeptRegistrant {
            initiator: nexus.initiator.clone(),
            isid: nexus.isid,
            port: nexus.port,
            key: *key,
            holds: self.persistent.as_ref().is_some_and(|held| held.nexus == *nexus),
        };
        let kept = Kept {
            version: VERSION,
            registrants: self.registrants.iter().map(registrant).collect(),
            kind: self.persistent.as_ref().map(|held| held.kind as u8),
        };
        Some(serde_json::to_vec(&kept).expect("plain fields are always JSON"))
    }

    /// From what was kept.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn from_kept(bytes: &[u8]) -> Result<Self, String> {
        let Kept { version, registrants, kind } = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if version != VERSION {
            return Err(format!("version {version} is not {VERSION}"));
        }
        let mut restored = Self { is_kept: true, ..Self::default() };
        let mut holder = None;
        for KeptRegistrant { initiator, isid, port, key, holds } in registrants {
            let nexus = ItNexus { initiator, isid, port };
            if key == 0 {
                return Err(format!("{} has key 0", nexus.initiator));
            }
            if holds {
                holder = Some(nexus.clone());
            }
            restored.registrants.insert(nexus, key);
        }
        restored.persistent = match (kind, holder) {
            (None, None) => None,
            (Some(code), Some(nexus)) => {
                let kind = ReservationType::of(code).ok_or_else(|| format!("type {code} is none"))?;
                Some(Persistent { kind, nexus })
            }
            _ => return Err("a reservation without a holder, or the other way round".to_owned()),
        };
        Ok(restored)
    }
}
