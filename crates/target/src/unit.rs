//! A unit as the target keeps it: a device, how a host may use it, and what MODE SELECT has changed of it.

use quoin_scsi::Modes;
use quoin_volume::BlockDevice;
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
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

/// The modes of a volume, one for all who see it.
#[derive(Default, Debug)]
pub(crate) struct SharedModes(AtomicU8);

const DESCRIPTOR_SENSE: u8 = 1;
const WRITE_PROTECT: u8 = 2;

fn unpack(bits: u8) -> Modes {
    Modes { descriptor_sense: bits & DESCRIPTOR_SENSE != 0, write_protect: bits & WRITE_PROTECT != 0 }
}

fn pack(modes: Modes) -> u8 {
    let bit = |set, bit| if set { bit } else { 0 };
    bit(modes.descriptor_sense, DESCRIPTOR_SENSE) | bit(modes.write_protect, WRITE_PROTECT)
}

impl SharedModes {
    pub(crate) fn get(&self) -> Modes {
        unpack(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn reset(&self) {
        self.0.store(pack(Modes::default()), Ordering::Release);
    }

    /// Makes the modes what `change` says; returns whether they differ from before.
    pub(crate) fn change<E>(&self, change: impl Fn(Modes) -> Result<Modes, E>) -> Result<bool, E> {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let after = pack(change(unpack(before))?);
            match self.0.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(after != before),
                Err(now) => before = now,
            }
        }
    }
}

/// A volume shown to a host.
pub(crate) struct Shown<D> {
    pub(crate) device: Arc<D>,
    pub(crate) access: Access,
    pub(crate) modes: Arc<SharedModes>,
}

impl<D: BlockDevice> Shown<D> {
    /// Whether the host may not write: by its mapping, or because nobody may.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access.is_read_only(&*self.device)
    }
}

impl<D> Clone for Shown<D> {
    fn clone(&self) -> Self {
        Self { device: self.device.clone(), access: self.access, modes: self.modes.clone() }
    }
}
