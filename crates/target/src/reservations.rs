//! Who has reserved a unit, and what that keeps others from (SPC-4 §5.13, and RESERVE and RELEASE of SPC-2).
//!
//! [`Reservations`] is the state and its rules, without locks, sessions or drives: a request either changes it and says whom that
//! concerns, or changes nothing.
//!
//! Invariants:
//! 1. Who holds a persistent reservation is registered; the last registrant that goes takes the reservation along.
//! 2. No key is 0.
//! 3. RESERVE and registrations keep one another out.

mod kept;
mod out;
mod view;

pub(crate) use out::Out;
use quoin_scsi::{
    InitiatorPort, Needs, Registration, ReservationType, ReserveIn, Sense, read_full_status, read_keys,
    read_reservation, reserve_capabilities,
};
use std::collections::BTreeMap;
pub use view::{RegistrationView, ReservationsView};

/// An I_T nexus: an initiator port and a target port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ItNexus {
    /// Initiator name, in lower case.
    pub(crate) initiator: String,
    pub(crate) isid: [u8; 6],
    /// Relative identifier of the target port.
    pub(crate) port: u16,
}

impl ItNexus {
    fn initiator_port(&self) -> InitiatorPort {
        InitiatorPort { name: self.initiator.clone(), isid: Some(self.isid) }
    }
}

/// A persistent reservation. Where all registrants hold it, `nexus` is one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Persistent {
    kind: ReservationType,
    nexus: ItNexus,
}

/// The registrations and the reservation of a unit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reservations {
    generation: u32,
    registrants: BTreeMap<ItNexus, u64>,
    persistent: Option<Persistent>,
    /// APTPL: all of it survives a restart.
    is_kept: bool,
    /// Who has it by RESERVE.
    reserved: Option<ItNexus>,
    /// What was kept of it cannot be read: who was fenced is not known, so nobody may read or write.
    is_unreadable: bool,
}

/// Most registrations of a unit.
pub(crate) const REGISTRANTS_MAX: usize = 256;
/// Most bytes that are kept of a unit's reservations: a transaction of the catalog takes no more.
const KEPT_MAX_BYTES: usize = 56 << 10;
pub(crate) const INSUFFICIENT: Refusal = Refusal::Sense(Sense::INSUFFICIENT_REGISTRATION_RESOURCES);

/// Why a request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Conflict,
    Sense(Sense),
}

/// Whom a change concerns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Effect {
    /// Unit attentions to establish.
    pub(crate) attentions: Vec<(ItNexus, Sense)>,
    /// Whose commands are to be aborted.
    pub(crate) aborted: Vec<ItNexus>,
}

impl Reservations {
    /// Those of a unit of which what was kept cannot be read.
    pub(crate) fn unreadable() -> Self {
        Self { is_unreadable: true, ..Self::default() }
    }

    /// Whether nobody is kept from anything.
    pub(crate) fn is_open(&self) -> bool {
        self.persistent.is_none() && self.reserved.is_none() && !self.is_unreadable
    }

    /// Whether there is nothing to know of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_open() && self.registrants.is_empty()
    }

    /// Whether a nexus may do what needs this.
    pub(crate) fn lets(&self, nexus: &ItNexus, needs: Needs) -> bool {
        if needs == Needs::Nothing {
            return true;
        }
        if let Some(reserved) = &self.reserved {
            return reserved == nexus;
        }
        if self.is_unreadable {
            return needs == Needs::Presence;
        }
        let Some(persistent) = &self.persistent else { return true };
        let is_registered = self.registrants.contains_key(nexus);
        match needs {
            Needs::Nothing | Needs::Presence => true,
            _ if *nexus == persistent.nexus => true,
            _ if is_registered && persistent.kind.lets_registrants() => true,
            Needs::Read => persistent.kind.lets_read(),
            Needs::Write => false,
        }
    }

    fn is_holder(&self, nexus: &ItNexus) -> bool {
        self.persistent.as_ref().is_some_and(|persistent| {
            persistent.nexus == *nexus
                || persistent.kind.is_held_by_all() && self.registrants.contains_key(nexus)
        })
    }

    /// RESERVE. To who is registered it is GOOD and does nothing, where the unit is open to them (CRH of REPORT CAPABILITIES).
    pub(crate) fn reserve(&mut self, nexus: &ItNexus) -> Result<(), Refusal> {
        match &self.reserved {
            Some(reserved) if reserved != nexus => Err(Refusal::Conflict),
            _ if self.is_unreadable => Err(Refusal::Conflict),
            _ if self.registrants.is_empty() => {
                self.reserved = Some(nexus.clone());
                Ok(())
            }
            // There must be one that lets it: or two would both take it for theirs.
            _ if self.persistent.is_some()
                && self.registrants.contains_key(nexus)
                && self.lets(nexus, Needs::Write) =>
            {
                Ok(())
            }
            _ => Err(Refusal::Conflict),
        }
    }

    /// RELEASE: nothing happens if somebody else has it.
    pub(crate) fn release(&mut self, nexus: &ItNexus) -> Result<(), Refusal> {
        self.reserved.take_if(|reserved| reserved == nexus);
        let is_let = self.registrants.is_empty()
            || self.registrants.contains_key(nexus) && self.lets(nexus, Needs::Write);
        if is_let { Ok(()) } else { Err(Refusal::Conflict) }
    }

    /// A reset, or the end of the session that reserved it, ends what RESERVE did.
    pub(crate) fn end_reserve(&mut self, nexus: Option<&ItNexus>) {
        self.reserved.take_if(|reserved| nexus.is_none_or(|nexus| reserved == nexus));
    }

    /// PERSISTENT RESERVE IN.
    pub(crate) fn read(&self, nexus: &ItNexus, action: ReserveIn) -> Result<Vec<u8>, Refusal> {
        if self.reserved.as_ref().is_some_and(|reserved| reserved != nexus) {
            return Err(Refusal::Conflict);
        }
        let generation = self.generation;
        Ok(match action {
            ReserveIn::ReadKeys => read_keys(generation, self.registrants.values().copied()),
            ReserveIn::ReadReservation => {
                let reservation = self.persistent.as_ref().map(|Persistent { kind, nexus }| {
                    let key = if kind.is_held_by_all() { None } else { self.registrants.get(nexus) };
                    (key.copied().unwrap_or(0), *kind)
                });
                read_reservation(generation, reservation)
            }
            ReserveIn::ReportCapabilities => reserve_capabilities(self.is_kept),
            ReserveIn::ReadFullStatus => read_full_status(generation, self.registrations()),
        })
    }

    fn registrations(&self) -> impl Iterator<Item = Registration> {
        self.registrants.iter().map(|(nexus, key)| Registration {
            key: *key,
            holds: self
                .persistent
                .as_ref()
                .filter(|_| self.is_holder(nexus))
                .map(|persistent| persistent.kind),
            relative_port: nexus.port,
            initiator: nexus.initiator_port(),
        })
    }
}

#[cfg(test)]
mod tests;
