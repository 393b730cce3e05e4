//! Labels and zeroes on a disk on which no drive is open yet.

use crate::{DriveError, LABEL_OFFSETS, Label, label::Copy};
use quoin_world::{Buf, Disk, DiskOp};
use std::{collections::VecDeque, sync::Arc};

const ZEROES_BYTES: u64 = 1 << 20;
const ZEROES_IN_FLIGHT: usize = 8;

/// What is wrong with a copy of the label.
pub(crate) fn copy_problem(copy: &Copy) -> Option<String> {
    match copy {
        Copy::Valid(_) => None,
        Copy::Absent => Some("it is gone".to_owned()),
        Copy::Damaged(why) => Some(why.clone()),
        Copy::OtherVersion(version) => Some(format!("it is of format {version}")),
        Copy::Unreadable(error) => Some(format!("it cannot be read ({error})")),
    }
}

/// Writes a copy of the label, durably.
pub(crate) async fn write_label(disk: &Arc<dyn Disk>, copy: usize, label: &Label) -> Result<(), DriveError> {
    assert_eq!(label.problem(), None, "a label that is written to {} can be read back", disk.name());
    let write = DiskOp::Write { offset: LABEL_OFFSETS[copy], data: vec![label.encode()], durable: true };
    disk.submit(write).await?;
    Ok(())
}

/// Writes zeroes over the range, several writes at a time. Not durable yet.
pub(crate) async fn zero(disk: &Arc<dyn Disk>, start: u64, len: u64) -> Result<(), DriveError> {
    let zeroes = Buf::zeroed(ZEROES_BYTES as usize).into_slice();
    let mut in_flight = VecDeque::with_capacity(ZEROES_IN_FLIGHT);
    for piece in quoin_base::ByteRange::new(start, len).split(ZEROES_BYTES) {
        if in_flight.len() == ZEROES_IN_FLIGHT
            && let Some(oldest) = in_flight.pop_front()
        {
            oldest.await?;
        }
        let data = vec![zeroes.slice(..piece.len as usize)];
        in_flight.push_back(disk.submit(DiskOp::Write { offset: piece.offset, data, durable: false }));
    }
    for rest in in_flight {
        rest.await?;
    }
    Ok(())
}
