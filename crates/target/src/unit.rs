//! A unit as the target keeps it: a device, how a host may use it, what MODE SELECT has changed of it, and who has reserved it.

use crate::{
    counters::Counters,
    inside::{Entered, Inside},
    queue::Queue,
    reservations::{ItNexus, Refusal, Reservations},
    sanitizing::Sanitizing,
    settings::Settings,
    shared_modes::SharedModes,
};
use parking_lot::Mutex;
use quoin_scsi::{Needs, Port, Sense};
use quoin_volume::{BlockDevice, Kept};
use quoin_world::AsyncMutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What a host may do with a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// What the device lets everybody do; see [`BlockDevice::is_read_only_by_default`].
    #[default]
    Default,
    /// Read and write, unless nobody may write to the device.
    ReadWrite,
    /// Read: for this host the unit is write-protected.
    ReadOnly,
}

impl Access {
    /// Whether who has it may not write to this device.
    pub(crate) fn is_read_only(self, device: &impl BlockDevice) -> bool {
        let withheld = match self {
            Self::Default => device.is_read_only_by_default(),
            Self::ReadWrite => false,
            Self::ReadOnly => true,
        };
        withheld || device.is_read_only()
    }
}

/// What is known of a volume beside its device, one for all who see it.
pub(crate) struct UnitState {
    pub(crate) modes: SharedModes,
    pub(crate) sanitizing: Sanitizing,
    pub(crate) counters: Counters,
    reservations: Mutex<Reservations>,
    /// As [`Reservations::is_open`] says: most requests look at nothing else.
    restricts: AtomicBool,
    pub(crate) queue: Arc<Queue>,
    /// Requests that write and are being executed.
    inside: Inside,
    /// Held by the one who changes reservations or settings; only the end of a RESERVE does not wait for it.
    ///
    /// Its holder may wait until no request is inside, so no request that is inside takes it.
    pub(crate) changing: AsyncMutex,
}

impl UnitState {
    /// As the device keeps it.
    pub(crate) fn of(device: &impl BlockDevice) -> Self {
        let reservations = Self::kept_reservations(device).unwrap_or_else(|why| {
            let volume = device.name();
            tracing::error!(
                volume,
                why,
                "its reservations cannot be read: hosts are kept out until one registers anew"
            );
            Reservations::unreadable()
        });
        let settings = Self::kept_settings(device);
        Self {
            modes: SharedModes::new(settings.modes),
            sanitizing: Sanitizing::from_kept(settings.sanitize),
            counters: Counters::default(),
            restricts: AtomicBool::new(!reservations.is_open()),
            reservations: Mutex::new(reservations),
            queue: Arc::default(),
            inside: Inside::default(),
            changing: AsyncMutex::new(),
        }
    }

    /// What the device keeps of reservations.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn kept_reservations(device: &impl BlockDevice) -> Result<Reservations, String> {
        let kept = device.kept(Kept::Reservations);
        kept.map_or_else(|| Ok(Reservations::default()), |bytes| Reservations::from_kept(&bytes))
    }

    /// What the device keeps of the settings. What cannot be read is no reason to keep hosts out.
    fn kept_settings(device: &impl BlockDevice) -> Settings {
        let kept = device.kept(Kept::Settings).map(|bytes| Settings::from_kept(&bytes));
        let volume = device.name();
        let settings = kept.transpose().map(Option::unwrap_or_default).unwrap_or_else(|why| {
            tracing::warn!(volume, why, "its saved settings cannot be read: it has those by default");
            Settings::default()
        });
        if settings.sanitize.is_some() {
            tracing::warn!(volume, "a SANITIZE of it did not come to its end: hosts are kept out");
        }
        settings
    }

    /// What the device keeps, or would if anything differed from the default.
    pub(crate) fn settings(&self) -> Settings {
        Settings { modes: self.modes.saved(), sanitize: self.sanitizing.kept() }
    }

    /// Hardens the settings. To be called by the one who changes them.
    pub(crate) async fn keep(&self, device: &impl BlockDevice, settings: Settings) -> Result<(), Sense> {
        let kept = settings.to_keep();
        // NOTE: compared with what the device has, which may be what cannot be read.
        if device.kept(Kept::Settings) != kept {
            let hardened = device.keep(Kept::Settings, kept).await;
            hardened.map_err(|error| Sense::of_device(&error, device.block_bytes()))?;
        }
        self.modes.set_saved(settings.modes);
        self.sanitizing.set_kept(settings.sanitize);
        Ok(())
    }

    /// Whether its reservations let a nexus do what needs this.
    pub(crate) fn lets(&self, nexus: &ItNexus, needs: Needs) -> bool {
        !self.restricts.load(Ordering::SeqCst) || self.reservations.lock().lets(nexus, needs)
    }

    /// Goes in to write; `None` if reservations keep the nexus out. Whoever was let in is waited for by a change that would have
    /// kept it out.
    pub(crate) fn enter(&self, nexus: &ItNexus) -> Option<Entered<'_>> {
        // NOTE: counted first.
        let entered = self.inside.enter();
        self.lets(nexus, Needs::Write).then_some(entered)
    }

    pub(crate) fn reservations(&self) -> Reservations {
        self.reservations.lock().clone()
    }

    /// Makes them what they have become. To be called by the one who changes them.
    pub(crate) fn set_reservations(&self, reservations: Reservations) {
        let mut current = self.reservations.lock();
        *current = reservations;
        self.restricts.store(!current.is_open(), Ordering::SeqCst);
    }

    /// Waits until nothing is done any more that was begun before now. To be called by the one who changes reservations.
    pub(crate) async fn settle(&self) {
        self.inside.settle().await;
    }

    /// RELEASE.
    pub(crate) fn release(&self, nexus: &ItNexus) -> Result<(), Refusal> {
        let mut current = self.reservations.lock();
        let done = current.release(nexus);
        self.restricts.store(!current.is_open(), Ordering::SeqCst);
        done
    }

    /// Ends what RESERVE did: for one whose session ends, or for all at a reset.
    pub(crate) fn end_reserve(&self, nexus: Option<&ItNexus>) {
        if self.restricts.load(Ordering::SeqCst) {
            let mut current = self.reservations.lock();
            current.end_reserve(nexus);
            self.restricts.store(!current.is_open(), Ordering::SeqCst);
        }
    }

    /// Whether it would be the same if it were made anew.
    pub(crate) fn is_plain(&self) -> bool {
        self.modes.get() == self.modes.saved()
            && self.sanitizing.is_idle()
            && self.reservations.lock().is_empty()
    }
}

/// A volume shown to a host.
pub(crate) struct Shown<D> {
    pub(crate) device: Arc<D>,
    pub(crate) access: Access,
    pub(crate) state: Arc<UnitState>,
}

impl<D: BlockDevice> Shown<D> {
    /// Whether the host may not write: by its mapping, or because nobody may.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access.is_read_only(&*self.device)
    }

    /// The unit, as commands through a port see it.
    pub(crate) fn unit<'a>(&self, port: &'a Port) -> quoin_scsi::Unit<'a> {
        let (modes, saved) = (self.state.modes.get(), self.state.modes.saved());
        quoin_scsi::Unit { port, modes, saved, read_only: self.is_read_only() }
    }
}

impl<D> Clone for Shown<D> {
    fn clone(&self) -> Self {
        Self { device: self.device.clone(), access: self.access, state: self.state.clone() }
    }
}
