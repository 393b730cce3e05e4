//! PERSISTENT RESERVE OUT (SPC-4 §5.13.7 to §5.13.11).

use super::{
    Effect, INSUFFICIENT, ItNexus, KEPT_MAX_BYTES, Persistent, REGISTRANTS_MAX, Refusal, Reservations,
};
use quoin_scsi::{ReservationType, ReserveAction, ReserveOut, ReserveParameters, Sense};

/// The target's part of a request.
pub(crate) struct Out<'a> {
    /// Who sent it.
    pub(crate) from: &'a ItNexus,
    pub(crate) request: ReserveOut,
    pub(crate) parameters: &'a ReserveParameters,
    /// All target ports.
    pub(crate) ports: &'a [u16],
    /// The nexuses of other initiator ports that the list names, through the port by which it came.
    pub(crate) others: &'a [ItNexus],
}

/// SCOPE: the logical unit, the only one there is.
const LOGICAL_UNIT: u8 = 0;
const CONFLICT: Refusal = Refusal::Conflict;

fn invalid_list<T>() -> Result<T, Refusal> {
    Err(Refusal::Sense(Sense::INVALID_FIELD_IN_PARAMETER_LIST))
}

impl Out<'_> {
    /// The nexuses of these with all target ports, if the request is for all.
    fn over_ports(&self, nexuses: impl IntoIterator<Item = ItNexus>) -> Vec<ItNexus> {
        let over = |nexus: ItNexus| {
            let ports = if self.parameters.all_target_ports { self.ports.to_vec() } else { vec![nexus.port] };
            ports.into_iter().map(move |port| ItNexus { port, ..nexus.clone() })
        };
        nexuses.into_iter().flat_map(over).collect()
    }

    fn kind(&self) -> Result<ReservationType, Refusal> {
        let kind = ReservationType::of(self.request.kind).filter(|_| self.request.scope == LOGICAL_UNIT);
        kind.ok_or(Refusal::Sense(Sense::INVALID_FIELD_IN_CDB))
    }
}

impl Reservations {
    /// PERSISTENT RESERVE OUT.
    ///
    /// # Errors
    /// A conflict, or what is wrong with the request; nothing is changed.
    pub(crate) fn out(&mut self, out: &Out<'_>) -> Result<Effect, Refusal> {
        // Who ignores the keys that there were begins anew where nobody knows them.
        let begins_anew = out.request.action == ReserveAction::RegisterAndIgnoreExistingKey;
        if self.reserved.is_some() || self.is_unreadable && !begins_anew {
            return Err(CONFLICT);
        }
        let before = self.clone();
        let done = match out.request.action {
            ReserveAction::Register => self.register(out, false),
            ReserveAction::RegisterAndIgnoreExistingKey => self.register(out, true),
            ReserveAction::Reserve => self.reserve_persistently(out),
            ReserveAction::Release => self.release_persistent(out),
            ReserveAction::Clear => self.clear(out),
            ReserveAction::Preempt => self.preempt(out, false),
            ReserveAction::PreemptAndAbort => self.preempt(out, true),
            ReserveAction::RegisterAndMove => self.register_and_move(out),
        };
        let is_much = self.registrants.len() > REGISTRANTS_MAX
            || self.to_keep().is_some_and(|kept| kept.len() > KEPT_MAX_BYTES);
        let done = if done.is_ok() && is_much { Err(INSUFFICIENT) } else { done };
        if done.is_err() {
            *self = before;
        }
        debug_assert!(self.registrants.values().all(|key| *key != 0), "a registrant has key 0");
        debug_assert!(
            self.persistent.as_ref().is_none_or(|held| self.registrants.contains_key(&held.nexus)),
            "who holds the reservation is not registered"
        );
        done
    }

    /// Refuses who is not registered, or says another key than its own.
    fn require_key(&self, out: &Out<'_>) -> Result<(), Refusal> {
        if self.registrants.get(out.from) == Some(&out.parameters.key) { Ok(()) } else { Err(CONFLICT) }
    }

    fn changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    fn register(&mut self, out: &Out<'_>, ignores_key: bool) -> Result<Effect, Refusal> {
        let ReserveParameters { key, action_key, .. } = *out.parameters;
        let own = self.registrants.get(out.from).copied();
        if !ignores_key && own.unwrap_or(0) != key {
            return Err(CONFLICT);
        }
        let mut effect = Effect::default();
        if own.is_some() && !out.others.is_empty() {
            return Err(Refusal::Sense(Sense::INVALID_FIELD_IN_CDB));
        }
        let own_ports = out.over_ports([out.from.clone()]);
        let others = out.over_ports(out.others.iter().cloned());
        // Nobody registers another one anew.
        if others.iter().any(|nexus| self.registrants.contains_key(nexus)) {
            return invalid_list();
        }
        let has_another_key = |nexus: &ItNexus| self.registrants.get(nexus).is_some_and(|own| *own != key);
        if !ignores_key && own_ports.iter().any(has_another_key) {
            return Err(CONFLICT);
        }
        if action_key == 0 {
            // Who is not registered has nothing to give up.
            if own.is_none() {
                return Ok(effect);
            }
            for nexus in own_ports {
                self.unregister(&nexus, &mut effect);
            }
        } else {
            for nexus in own_ports.into_iter().chain(others) {
                self.registrants.insert(nexus, action_key);
            }
        }
        self.is_kept = out.parameters.survives_power_loss;
        self.is_unreadable = false;
        self.changed();
        Ok(effect)
    }

    /// Removes a registration, and the reservation with it if nobody is left to hold that.
    fn unregister(&mut self, nexus: &ItNexus, effect: &mut Effect) {
        self.registrants.remove(nexus);
        let Some(held) = self.persistent.take_if(|held| held.nexus == *nexus) else { return };
        // One that all hold goes on while there is anybody.
        let next = self.registrants.keys().next().filter(|_| held.kind.is_held_by_all());
        self.persistent = next.map(|nexus| Persistent { nexus: nexus.clone(), ..held.clone() });
        if self.persistent.is_none() && held.kind.lets_registrants() {
            self.tell_registrants(nexus, Sense::RESERVATIONS_RELEASED, effect);
        }
    }

    /// Unit attentions for all registrants but one.
    fn tell_registrants(&self, except: &ItNexus, sense: Sense, effect: &mut Effect) {
        let others = self.registrants.keys().filter(|nexus| *nexus != except);
        effect.attentions.extend(others.map(|nexus| (nexus.clone(), sense)));
    }

    fn reserve_persistently(&mut self, out: &Out<'_>) -> Result<Effect, Refusal> {
        self.require_key(out)?;
        let kind = out.kind()?;
        match &self.persistent {
            None => self.persistent = Some(Persistent { kind, nexus: out.from.clone() }),
            Some(held) if held.kind == kind && self.is_holder(out.from) => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(Effect::default())
    }

    fn release_persistent(&mut self, out: &Out<'_>) -> Result<Effect, Refusal> {
        self.require_key(out)?;
        let mut effect = Effect::default();
        if !self.is_holder(out.from) {
            return Ok(effect);
        }
        let kind = self.persistent.as_ref().map(|held| held.kind);
        if kind != ReservationType::of(out.request.kind) || out.request.scope != LOGICAL_UNIT {
            return Err(Refusal::Sense(Sense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION));
        }
        self.persistent = None;
        if kind.is_some_and(ReservationType::lets_registrants) {
            self.tell_registrants(out.from, Sense::RESERVATIONS_RELEASED, &mut effect);
        }
        Ok(effect)
    }

    fn clear(&mut self, out: &Out<'_>) -> Result<Effect, Refusal> {
        self.require_key(out)?;
        let mut effect = Effect::default();
        self.tell_registrants(out.from, Sense::RESERVATIONS_PREEMPTED, &mut effect);
        self.registrants.clear();
        self.persistent = None;
        self.changed();
        Ok(effect)
    }

    fn preempt(&mut self, out: &Out<'_>, aborts: bool) -> Result<Effect, Refusal> {
        self.require_key(out)?;
        let victim = out.parameters.action_key;
        let held = self.persistent.clone();
        let by_all = held.as_ref().filter(|held| held.kind.is_held_by_all());
        let holder_key = held.as_ref().and_then(|held| self.registrants.get(&held.nexus)).copied();
        // Of a reservation that all hold, key 0 means all others. Else the key says whose registrations go, and the
        // reservation goes over if it is the holder's.
        let takes_over = match by_all {
            Some(_) => victim == 0,
            None if victim == 0 => return invalid_list(),
            None => holder_key == Some(victim),
        };
        let kind = if takes_over { Some(out.kind()?) } else { None };
        // Who takes the reservation over stays registered; else its own key names it as well as others.
        let is_victim = |nexus: &ItNexus, key: u64| {
            let is_named = key == victim || victim == 0 && by_all.is_some();
            is_named && !(takes_over && nexus == out.from)
        };
        let victims: Vec<ItNexus> = self
            .registrants
            .iter()
            .filter(|(nexus, key)| is_victim(nexus, **key))
            .map(|(nexus, _)| nexus.clone())
            .collect();
        if victims.is_empty() && !takes_over {
            return Err(CONFLICT);
        }
        let mut effect = Effect::default();
        for nexus in &victims {
            self.registrants.remove(nexus);
            if nexus != out.from {
                effect.attentions.push((nexus.clone(), Sense::REGISTRATIONS_PREEMPTED));
            }
        }
        if let Some(kind) = kind {
            // Who stays learns that another kind of reservation holds now.
            if held.is_some_and(|held| held.kind != kind) {
                self.tell_registrants(out.from, Sense::RESERVATIONS_RELEASED, &mut effect);
            }
            self.persistent = Some(Persistent { kind, nexus: out.from.clone() });
        } else if let Some(held) = &mut self.persistent
            && !self.registrants.contains_key(&held.nexus)
        {
            // All hold it, and who was named for all is gone. The last one takes it along.
            match self.registrants.keys().next() {
                Some(next) => held.nexus = next.clone(),
                None => self.persistent = None,
            }
        }
        if aborts {
            effect.aborted = victims.into_iter().filter(|nexus| nexus != out.from).collect();
        }
        self.changed();
        Ok(effect)
    }

    fn register_and_move(&mut self, out: &Out<'_>) -> Result<Effect, Refusal> {
        self.require_key(out)?;
        let ReserveParameters { action_key, unregisters, .. } = *out.parameters;
        let Some(held) = &self.persistent else { return Err(Refusal::Sense(Sense::INVALID_FIELD_IN_CDB)) };
        if held.nexus != *out.from || held.kind.is_held_by_all() {
            return Err(CONFLICT);
        }
        let [to] = out.others else { return invalid_list() };
        if action_key == 0 || to.initiator_port() == out.from.initiator_port() {
            return invalid_list();
        }
        self.registrants.insert(to.clone(), action_key);
        if let Some(held) = &mut self.persistent {
            held.nexus = to.clone();
        }
        if unregisters {
            self.registrants.remove(out.from);
        }
        self.is_kept = out.parameters.survives_power_loss;
        self.changed();
        Ok(Effect::default())
    }
}
