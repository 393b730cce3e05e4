//! What a target knows of a unit besides its device.

use crate::{command::Command, sense::Sense};

/// The port through which a unit is reached, for the device identification page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The target's iSCSI name.
    pub target_name: String,
    /// The target portal group tag, which is also the relative port identifier.
    pub group: u16,
}

/// What MODE SELECT has changed of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modes {
    /// D_SENSE: sense data in descriptor format.
    pub descriptor_sense: bool,
    /// SWP: writes are refused.
    pub write_protect: bool,
}

/// What a target knows of a unit besides its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit<'a> {
    /// The port through which it is reached.
    pub port: &'a Port,
    /// What MODE SELECT has changed.
    pub modes: Modes,
    /// What of that is saved: it comes back with a reset and with a restart.
    pub saved: Modes,
    /// It is shown to this host for reading only.
    pub read_only: bool,
}

impl Unit<'_> {
    /// Refuses a command that would change the medium of a write-protected unit.
    ///
    /// # Errors
    /// WRITE PROTECTED, or LOGICAL UNIT SOFTWARE WRITE PROTECTED.
    pub fn check_protection(&self, command: &Command) -> Result<(), Sense> {
        if !command.writes() {
            Ok(())
        } else if self.read_only {
            Err(Sense::WRITE_PROTECTED)
        } else if self.modes.write_protect {
            Err(Sense::SOFTWARE_WRITE_PROTECTED)
        } else {
            Ok(())
        }
    }
}
