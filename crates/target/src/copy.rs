//! Copies between units that a host asks for (SPC-4 §5.16), and what became of them.
//!
//! A segment is copied from an image of the source, so that nothing moves over the network, and where the array can share blocks,
//! nothing is read or written.

use crate::{Request, nexus::parameter_list, unit::Shown};
use quoin_base::ByteRange;
use quoin_scsi::{
    CopyList, CopyResults, CopyStatus, Geometry, Needs, Reply, Segment, Sense, copy_status,
    operating_parameters,
};
use quoin_volume::BlockDevice;
use quoin_world::Slice;

impl<D: BlockDevice> Request<D> {
    /// EXTENDED COPY.
    pub(crate) async fn extended_copy(&self, parameter_bytes: u32, data: &[Slice]) -> Reply {
        let list = parameter_list(parameter_bytes, data).and_then(|list| CopyList::parse(&list));
        let copied = match list {
            Err(sense) => Err(sense),
            Ok(None) => Ok(()),
            Ok(Some(list)) => self.copy_all(&list).await,
        };
        match copied {
            Ok(()) => Reply { wanted_bytes: parameter_bytes.into(), ..Reply::good() },
            Err(sense) => Reply::check(sense),
        }
    }

    /// RECEIVE COPY RESULTS.
    pub(crate) fn copy_results(&self, what: CopyResults, allocation: u32) -> Reply {
        let data = match what {
            CopyResults::OperatingParameters => Ok(operating_parameters()),
            CopyResults::CopyStatus(id) => self.nexus.copies.tell(id).map(copy_status),
        };
        data.map_or_else(Reply::check, |data| Reply::parameters(data, allocation))
    }

    /// Notes that a copy begins; returns the identifier under which its status is told.
    fn begin(&self, list: &CopyList) -> Result<Option<u8>, Sense> {
        let Some(id) = list.id else { return Ok(None) };
        match self.nexus.copies.begin(id) {
            Ok(()) => Ok(Some(id)),
            // QEMU sends copies side by side under one identifier. The first of them has the status.
            Err(_) if list.may_discard => Ok(None),
            Err(sense) => Err(sense),
        }
    }

    async fn copy_all(&self, list: &CopyList) -> Result<(), Sense> {
        let id = self.begin(list)?;
        let mut status = CopyStatus { succeeded: None, segments: 0, bytes: 0 };
        let mut outcome = Ok(());
        for segment in &list.segments {
            match self.copy_segment(segment).await {
                Ok(bytes) => status.bytes = status.bytes.saturating_add(bytes),
                Err(sense) => {
                    outcome = Err(sense);
                    break;
                }
            }
            status.segments += 1;
            if let Some(id) = id {
                self.nexus.copies.note(id, status);
            }
        }
        if let Some(id) = id {
            self.nexus.copies.note(id, CopyStatus { succeeded: Some(outcome.is_ok()), ..status });
        }
        outcome
    }

    /// Copies a segment, in the rights of the session: of what it sees, and as reservations let it. Returns how many bytes.
    async fn copy_segment(&self, segment: &Segment) -> Result<u32, Sense> {
        const UNREACHABLE: Sense = Sense::COPY_TARGET_DEVICE_NOT_REACHABLE;
        let (_, luns) = self.target.luns_of(&self.nexus.name.initiator);
        let seen = |designator: Option<quoin_scsi::Designator>| {
            let designator = designator?;
            luns.values().find(|shown| designator.is_of(shown.device.uuid()))
        };
        let (source, target) = seen(segment.source).zip(seen(segment.destination)).ok_or(UNREACHABLE)?;
        let nexus = &self.nexus.it_nexus;
        if !source.state.lets(nexus, Needs::Read) || !source.state.sanitizing.is_idle() {
            return Err(UNREACHABLE);
        }
        // NOTE: inside until it is copied, so that a preempt waits for it.
        let _writing = target.state.enter(nexus).ok_or(UNREACHABLE)?;
        // NOTE: after the copy was counted as inside: a SANITIZE waits for those that are.
        if !target.state.sanitizing.is_idle() {
            return Err(UNREACHABLE);
        }
        if target.is_read_only() || target.state.modes.get().write_protect {
            return Err(Sense::WRITE_PROTECTED);
        }
        let counted = if segment.counts_destination { target } else { source };
        let bytes = u64::from(segment.blocks) * u64::from(counted.device.block_bytes());
        let from = range_of(source, segment.source_lba, bytes)?;
        let to = range_of(target, segment.destination_lba, bytes)?;
        if bytes > 0 {
            let failed = |error| Sense::of_device(&error, target.device.block_bytes());
            let image = source.device.image(from).await.map_err(failed)?;
            target.device.copy_from(to.offset, &image, from).await.map_err(failed)?;
        }
        Ok(bytes as u32)
    }
}

/// So many bytes of a unit from a block on, if it has them.
fn range_of<D: BlockDevice>(shown: &Shown<D>, lba: u64, bytes: u64) -> Result<ByteRange, Sense> {
    let geometry = Geometry::of(&*shown.device);
    let block = u64::from(geometry.block_bytes);
    let offset = lba.checked_mul(block).ok_or(Sense::COPY_ABORTED)?;
    let end = offset.checked_add(bytes).ok_or(Sense::COPY_ABORTED)?;
    if end <= geometry.size_bytes && bytes.is_multiple_of(block) {
        Ok(ByteRange::new(offset, bytes))
    } else {
        Err(Sense::COPY_ABORTED)
    }
}
