//! Whether a host may still do what it was admitted to.

use crate::Request;
use quoin_scsi::Sense;
use quoin_volume::BlockDevice;

impl<D: BlockDevice> Request<D> {
    /// Checks the command against the mapping of its unit, if any mapping has changed since it was admitted.
    ///
    /// # Errors
    /// LOGICAL UNIT NOT SUPPORTED if its host does not see the volume under this number any more, WRITE PROTECTED if it
    /// may not write to it any more.
    pub(crate) fn check_mapping(&self) -> Result<(), Sense> {
        let (lun, version) = self.seen_as;
        if version == self.target.version() {
            return Ok(());
        }
        let shown = self.target.shown_as(&self.nexus.name.initiator, lun);
        let shown = shown.filter(|shown| shown.device.uuid() == self.volume());
        let shown = shown.ok_or(Sense::LUN_NOT_SUPPORTED)?;
        shown.unit(&self.nexus.port).check_protection(&self.command)
    }
}
