//! Modes of a unit, the same for all who see it.

use quoin_scsi::Modes;
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

    pub(crate) fn set(&self, modes: Modes) {
        self.current.store(pack(modes), Ordering::Release);
    }

    /// To be called when they are hardened.
    pub(crate) fn set_saved(&self, modes: Modes) {
        self.saved.store(pack(modes), Ordering::Release);
    }
}
