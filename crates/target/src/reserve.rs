//! Commands that reserve a unit, or ask who has; and how an administrator sees and ends what is reserved.

use crate::{
    NexusName, Notice, Request, Target,
    nexus::parameter_list,
    reservations::{
        Effect, INSUFFICIENT, ItNexus, Out, REGISTRANTS_MAX, Refusal, Reservations, ReservationsView,
    },
    unit::UnitState,
};
use quoin_scsi::{
    Geometry, InitiatorPort, Reply, ReserveAction, ReserveIn, ReserveOut, ReserveParameters, Sense,
};
use quoin_volume::{BlockDevice, DeviceError, Kept};
use quoin_world::{Slice, one_shot};
use std::collections::BTreeSet;

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Conflict => Reply::conflict(),
            Refusal::Sense(sense) => Reply::check(sense),
        }
    }
}

impl<D: BlockDevice> Request<D> {
    /// RESERVE.
    pub(crate) async fn reserve(&self) -> Reply {
        let state = &self.unit.state;
        let _turn = state.changing.lock().await;
        let mut reservations = state.reservations();
        match reservations.reserve(&self.nexus.it_nexus) {
            Ok(()) => {
                state.set_reservations(reservations);
                state.settle().await;
                Reply::good()
            }
            Err(refusal) => refusal.into(),
        }
    }

    /// RELEASE.
    pub(crate) async fn release(&self) -> Reply {
        let state = &self.unit.state;
        let _turn = state.changing.lock().await;
        state.release(&self.nexus.it_nexus).map_or_else(Reply::from, |()| Reply::good())
    }

    /// PERSISTENT RESERVE IN.
    pub(crate) fn reserve_in(&self, action: ReserveIn, allocation: u32) -> Reply {
        match self.unit.state.reservations().read(&self.nexus.it_nexus, action) {
            Ok(data) => Reply::parameters(data, allocation),
            Err(refusal) => refusal.into(),
        }
    }

    /// PERSISTENT RESERVE OUT. When it is answered, nothing is done any more that it keeps out, and what is to survive a restart
    /// is hardened.
    pub(crate) async fn reserve_out(&self, request: ReserveOut, data: &[Slice]) -> Reply {
        match self.try_reserve_out(request, data).await {
            Ok(()) => Reply { wanted_bytes: request.parameter_bytes.into(), ..Reply::good() },
            Err(refusal) => refusal.into(),
        }
    }

    async fn try_reserve_out(&self, request: ReserveOut, data: &[Slice]) -> Result<(), Refusal> {
        let (state, device) = (&self.unit.state, &*self.unit.device);
        let list = parameter_list(request.parameter_bytes, data).map_err(Refusal::Sense)?;
        let parameters = request.parameters(&list).map_err(Refusal::Sense)?;
        let (ports, others) = (self.target.ports(), self.others(&request, &parameters)?);
        let turn = state.changing.lock().await;
        let before = state.reservations();
        let mut after = before.clone();
        let from = &self.nexus.it_nexus;
        let out = Out { from, request, parameters: &parameters, ports: &ports, others: &others };
        let effect = after.out(&out)?;
        harden(device, &before, &after)
            .await
            .map_err(|error| Refusal::Sense(Sense::of_device(&error, Geometry::of(device).block_bytes)))?;
        // NOTE: hardened first. From here on nobody comes in who is kept out, and who is inside is waited for.
        state.set_reservations(after);
        state.settle().await;
        drop(turn);
        // NOTE: after the turn: one of the commands that are aborted may wait for it.
        self.target.tell(effect, device).await;
        Ok(())
    }

    /// The nexuses of the initiator ports that a request names beside its own.
    fn others(&self, request: &ReserveOut, parameters: &ReserveParameters) -> Result<Vec<ItNexus>, Refusal> {
        const INVALID: Refusal = Refusal::Sense(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
        let moves = request.action == ReserveAction::RegisterAndMove;
        let port = if moves { parameters.relative_port } else { self.nexus.it_nexus.port };
        if moves && !self.target.ports().contains(&port) {
            return Err(INVALID);
        }
        let named: BTreeSet<&InitiatorPort> = parameters.others.iter().collect();
        if named.len() > REGISTRANTS_MAX {
            return Err(INSUFFICIENT);
        }
        let mut others = BTreeSet::new();
        for InitiatorPort { name, isid } in named {
            match isid {
                Some(isid) => {
                    let name = NexusName { initiator: name.clone(), isid: *isid, group: port };
                    others.insert(name.it_nexus());
                }
                // By its name alone an initiator is known only while it is there.
                None => {
                    let known = self.target.nexuses_of(name).into_iter().filter(|nexus| nexus.port == port);
                    let before = others.len();
                    others.extend(known.take(REGISTRANTS_MAX));
                    if others.len() == before {
                        return Err(INVALID);
                    }
                }
            }
        }
        Ok(others.into_iter().collect())
    }
}

/// Hardens what is to survive a restart, if that changes.
async fn harden(
    device: &impl BlockDevice,
    before: &Reservations,
    after: &Reservations,
) -> Result<(), DeviceError> {
    let kept = after.to_keep();
    if before.to_keep() == kept { Ok(()) } else { device.keep(Kept::Reservations, kept).await }
}

impl<D: BlockDevice> Target<D> {
    /// What hosts have reserved of a volume, whether any host sees it or not.
    pub fn reservations(&self, device: &D) -> ReservationsView {
        let reservations = match self.unit(device.uuid()) {
            Some(unit) => unit.reservations(),
            None => UnitState::kept_reservations(device).unwrap_or_else(|_| Reservations::unreadable()),
        };
        reservations.view(|nexus| self.has_session(&NexusName::of(nexus)))
    }

    /// Ends all registrations and reservations of a volume, hardened on return, if `may` agrees to that; hosts that had any learn
    /// of it by a unit attention. Returns what there was.
    ///
    /// # Errors
    /// The device cannot harden it. Nothing has changed then.
    pub async fn clear_reservations(
        &self,
        device: &D,
        may: impl FnOnce(&ReservationsView) -> bool,
    ) -> Result<ReservationsView, DeviceError> {
        let state = self.unit_of(device);
        let turn = state.changing.lock().await;
        let mut after = state.reservations();
        let before = after.view(|nexus| self.has_session(&NexusName::of(nexus)));
        if before.is_empty() || !may(&before) {
            return Ok(before);
        }
        let effect = after.end();
        // NOTE: compared with what the device has, which may be what cannot be read.
        if device.kept(Kept::Reservations).is_some() {
            device.keep(Kept::Reservations, None).await?;
        }
        state.set_reservations(after);
        drop(turn);
        self.tell(effect, device).await;
        Ok(before)
    }

    /// Tells sessions what became of their registrations, and has their commands aborted.
    async fn tell(&self, effect: Effect, device: &D) {
        let unit = device.uuid();
        for (nexus, sense) in &effect.attentions {
            self.notify(nexus, Notice::Attention { unit, sense: *sense });
        }
        let mut ended = Vec::new();
        for nexus in effect.aborted {
            let (done, over) = one_shot();
            self.notify(&nexus, Notice::TasksAborted { unit, done });
            ended.push(over);
        }
        for over in ended {
            over.await;
        }
    }
}
