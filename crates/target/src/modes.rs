//! Modes of a unit, the same for all who see it, and MODE SELECT.

use crate::{Request, nexus::parameter_list, reservations::Refusal, settings::Settings};
use quoin_scsi::{Geometry, ModeSelect, Modes, Reply, Sense, mode_select};
use quoin_volume::{BlockDevice, Thresholds};
use quoin_world::Slice;
use std::sync::atomic::{AtomicU8, Ordering};

/// The modes of a unit: the current ones, and those that are saved. All requests look at them.
#[derive(Debug)]
pub(crate) struct SharedModes {
    current: AtomicU8,
    saved: AtomicU8,
}

const DESCRIPTOR_SENSE: u8 = 1;
const WRITE_PROTECT: u8 = 2;

fn pack(modes: Modes) -> u8 {
    let bit = |set, bit| if set { bit } else { 0 };
    bit(modes.descriptor_sense, DESCRIPTOR_SENSE) | bit(modes.write_protect, WRITE_PROTECT)
}

fn unpack(bits: u8) -> Modes {
    Modes { descriptor_sense: bits & DESCRIPTOR_SENSE != 0, write_protect: bits & WRITE_PROTECT != 0 }
}

impl SharedModes {
    /// Those after a restart: the current ones are the saved ones.
    pub(crate) fn new(saved: Modes) -> Self {
        Self { current: AtomicU8::new(pack(saved)), saved: AtomicU8::new(pack(saved)) }
    }

    pub(crate) fn get(&self) -> Modes {
        unpack(self.current.load(Ordering::Acquire))
    }

    pub(crate) fn saved(&self) -> Modes {
        unpack(self.saved.load(Ordering::Acquire))
    }

    /// A reset of the unit brings back what was saved.
    pub(crate) fn reset(&self) {
        self.current.store(self.saved.load(Ordering::Acquire), Ordering::Release);
    }

    fn set(&self, modes: Modes) {
        self.current.store(pack(modes), Ordering::Release);
    }

    /// To be called when they are hardened.
    pub(crate) fn set_saved(&self, modes: Modes) {
        self.saved.store(pack(modes), Ordering::Release);
    }
}

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
