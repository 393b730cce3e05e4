//! Reservations as administrators see them, and how they end those that nobody is left to release.

use super::{Effect, ItNexus, Reservations};
use quoin_scsi::{ReservationType, Sense};

/// What hosts have reserved of a unit, as listed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReservationsView {
    /// PRGENERATION: it counts changes of registrations since the array started.
    pub generation: u32,
    /// The type of the persistent reservation, if there is one.
    pub kind: Option<ReservationType>,
    /// Whether registrations and the persistent reservation survive a restart (APTPL).
    pub is_kept: bool,
    /// Who is registered.
    pub registrations: Vec<RegistrationView>,
    /// The initiator that has the whole unit by RESERVE.
    pub reserved_by: Option<String>,
    /// What was kept cannot be read: no host may read or write until one registers anew, or an administrator clears it.
    pub is_unreadable: bool,
}

/// A registration, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistrationView {
    /// Initiator name, in lower case.
    pub initiator: String,
    /// Identifies the sessions of the initiator.
    pub isid: [u8; 6],
    /// The target portal group that is the target port.
    pub group: u16,
    /// The reservation key.
    pub key: u64,
    /// Whether it holds the reservation.
    pub holds: bool,
    /// Whether its session is logged in.
    pub is_connected: bool,
}

impl ReservationsView {
    /// Whether nothing is reserved, and nobody registered.
    pub fn is_empty(&self) -> bool {
        self.registrations.is_empty() && self.reserved_by.is_none() && !self.is_unreadable
    }
}

impl Reservations {
    /// As listed.
    pub(crate) fn view(&self, is_connected: impl Fn(&ItNexus) -> bool) -> ReservationsView {
        let registration = |(nexus, key): (&ItNexus, &u64)| RegistrationView {
            initiator: nexus.initiator.clone(),
            isid: nexus.isid,
            group: nexus.port,
            key: *key,
            holds: self.is_holder(nexus),
            is_connected: is_connected(nexus),
        };
        ReservationsView {
            generation: self.generation,
            kind: self.persistent.as_ref().map(|held| held.kind),
            is_kept: self.is_kept && !self.registrants.is_empty(),
            registrations: self.registrants.iter().map(registration).collect(),
            reserved_by: self.reserved.as_ref().map(|nexus| nexus.initiator.clone()),
            is_unreadable: self.is_unreadable,
        }
    }

    /// Ends all of it, as if a registrant had sent CLEAR, and RESERVE had been released.
    pub(crate) fn end(&mut self) -> Effect {
        let before = std::mem::take(self);
        self.generation = before.generation.wrapping_add(1);
        let told = before.registrants.into_keys().chain(before.reserved);
        Effect {
            attentions: told.map(|nexus| (nexus, Sense::RESERVATIONS_PREEMPTED)).collect(),
            aborted: Vec::new(),
        }
    }
}
