//! MODE SELECT.

use crate::{Request, nexus::parameter_list, reservations::Refusal, settings::Settings};
use quoin_scsi::{Geometry, ModeSelect, Reply, Sense, mode_select};
use quoin_volume::{BlockDevice, Thresholds};
use quoin_world::Slice;

impl<D: BlockDevice> Request<D> {
    /// MODE SELECT. What it saves is hardened when it is answered.
    pub(crate) async fn select(&self, request: &ModeSelect, data: &[Slice]) -> Reply {
        match self.try_select(request, data).await {
            Ok(()) => Reply { wanted_bytes: request.parameter_bytes.into(), ..Reply::good() },
            Err(refusal) => refusal.into(),
        }
    }

    async fn try_select(&self, request: &ModeSelect, data: &[Slice]) -> Result<(), Refusal> {
        let (state, device) = (&self.unit.state, &*self.unit.device);
        let list = parameter_list(request.parameter_bytes, data).map_err(Refusal::Sense)?;
        let _turn = state.changing.lock().await;
        // NOTE: looked at in turn: since the command was admitted somebody may have reserved the
        // unit, or begun to sanitize it.
        if !state.lets(&self.nexus.it_nexus, self.command.needs()) {
            return Err(Refusal::Conflict);
        }
        if let Some(sense) = state.sanitizing.refusal(Some(&self.command)) {
            return Err(Refusal::Sense(sense));
        }
        let geometry = Geometry::of(device);
        let thresholds = device.thresholds().map(Thresholds::bytes);
        let (before, settings) = (state.modes.get(), state.settings());
        let after = mode_select(request, &list, geometry, thresholds.as_deref(), before);
        let after = after.map_err(Refusal::Sense)?;
        // NOTE: hardened first: if that fails, nothing has changed.
        let saved = if request.saves { after } else { settings.modes };
        state.keep(device, Settings { modes: saved, ..settings }).await.map_err(Refusal::Sense)?;
        state.modes.set(after);
        // The modes are the same for all sessions: the others learn of the change.
        if (after, saved) != (before, settings.modes) {
            self.target.announce(device.uuid(), Sense::MODE_PARAMETERS_CHANGED, Some(&*self.nexus));
        }
        Ok(())
    }
}
