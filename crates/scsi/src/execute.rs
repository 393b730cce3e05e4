//! Executing commands on a device.

use crate::{
    command::{Bytchk, Command, Extent, LogSense},
    data_out::{concat, total, truncate},
    geometry::Geometry,
    inquiry::{self, no_defects},
    limits,
    log::{self, LogCounter},
    mode, modify, provision,
    reply::Reply,
    report_opcodes,
    sense::Sense,
    unit::Unit,
};
use quoin_base::{ByteRange, MIB};
use quoin_volume::{BlockDevice, Thresholds};
use quoin_world::Slice;

/// Executes a command that [`Command::transfer`] let pass.
///
/// `data` is what the initiator sent, at most `out_bytes`, in slices cut at multiples of 512 bytes;
/// `in_limit_bytes` is what it is willing to take. REPORT LUNS, REQUEST SENSE, MODE SELECT, LOG SENSE and LOG SELECT are the
/// target's to answer: here they see this unit as number 0, without a sense or anything counted, and change nothing. Commands about reservations, target
/// ports and copies, and SANITIZE, fail here.
pub async fn execute<D: BlockDevice>(
    command: Command,
    device: &D,
    unit: Unit<'_>,
    data: Vec<Slice>,
    in_limit_bytes: u64,
) -> Reply {
    let geometry = Geometry::of(device);
    let outcome = match command {
        Command::Read(extent) => read(device, geometry, extent, in_limit_bytes).await,
        Command::Write(extent) => write(device, geometry, extent, data).await,
        Command::WriteAtomic(extent) => write_atomic(device, geometry, extent, data).await,
        Command::CompareAndWrite(extent) => modify::compare_and_write(device, geometry, extent, &data).await,
        Command::OrWrite(extent) => modify::or_write(device, geometry, extent, &data).await,
        Command::WriteAndVerify(extent, against) => {
            write_and_verify(device, geometry, extent, against, data).await
        }
        Command::Verify(extent, against) => verify(device, geometry, extent, against, &data).await,
        Command::WriteSame { extent, no_data, .. } => {
            provision::write_same(device, geometry, extent, no_data, &data).await
        }
        Command::Unmap { parameter_bytes, .. } => {
            provision::unmap(device, geometry, parameter_bytes, &data).await
        }
        Command::GetLbaStatus { lba, allocation } => {
            provision::lba_status(device, geometry, lba, allocation).await
        }
        // NOTE: `tell` names every command, so that a new one does not compile before it has its place.
        command => tell(command, device, geometry, unit),
    };
    let reply = outcome.unwrap_or_else(Reply::check);
    assert!(
        reply.sense.is_none() || reply.data.is_empty(),
        "SCSI {command:?}: an answer with sense has data"
    );
    Reply { descriptor_sense: unit.modes.descriptor_sense, ..reply }
}

/// Answers a command that only asks what the unit is and how it is set; one with nothing to tell is GOOD.
fn tell<D: BlockDevice>(
    command: Command,
    device: &D,
    geometry: Geometry,
    unit: Unit<'_>,
) -> Result<Reply, Sense> {
    let (data, allocation) = match command {
        Command::RequestSense { descriptor, allocation } => {
            return Ok(Reply::request_sense(Sense::NO_SENSE, descriptor, allocation));
        }
        Command::ReportLuns { allocation, .. } => (inquiry::report_luns([[0; 8]].into_iter()), allocation),
        Command::Inquiry { page, allocation } => {
            let has_thresholds = device.thresholds().is_some();
            (inquiry::inquiry(page, device.uuid(), geometry, has_thresholds, unit.port)?, allocation)
        }
        Command::ReadDefectData { long, format, allocation } => (no_defects(long, format), allocation),
        Command::ReadCapacity10 => (inquiry::read_capacity_10(geometry), limits::READ_CAPACITY_10_BYTES),
        Command::ReadCapacity16 { allocation } => (inquiry::read_capacity_16(geometry), allocation),
        Command::ReportTaskManagement { extended, allocation } => {
            (report_opcodes::task_management(extended), allocation)
        }
        Command::LogSense(request) => (uncounted_log(&request, device)?, request.allocation),
        Command::ModeSense(request) => {
            let thresholds = device.thresholds().map(Thresholds::bytes);
            (mode::sense(&request, geometry, thresholds.as_deref(), &unit)?, request.allocation)
        }
        Command::ReportOpcodes(request) => (report_opcodes::report(&request)?, request.allocation),
        // There is no volatile cache to synchronize, and nothing to fetch into one or to start.
        Command::TestUnitReady
        | Command::StartStopUnit { .. }
        | Command::SendDiagnostic
        | Command::ModeSelect(_)
        | Command::LogSelect(_)
        | Command::PreFetch(_)
        | Command::SynchronizeCache(_) => return Ok(Reply::good()),
        // The target answers these, who knows of initiators and ports; `execute` gives the others to the device.
        Command::Reserve
        | Command::Release
        | Command::PersistentReserveIn { .. }
        | Command::PersistentReserveOut(_)
        | Command::ExtendedCopy { .. }
        | Command::ReceiveCopyResults { .. }
        | Command::PopulateToken { .. }
        | Command::WriteUsingToken { .. }
        | Command::ReceiveRodTokenInformation { .. }
        | Command::Sanitize(_)
        | Command::ReportTargetPortGroups { .. }
        | Command::Read(_)
        | Command::Write(_)
        | Command::WriteAtomic(_)
        | Command::CompareAndWrite(_)
        | Command::OrWrite(_)
        | Command::WriteAndVerify(..)
        | Command::Verify(..)
        | Command::WriteSame { .. }
        | Command::Unmap { .. }
        | Command::GetLbaStatus { .. } => return Err(Sense::INTERNAL_TARGET_FAILURE),
    };
    Ok(Reply::parameters(data, allocation))
}

/// LOG SENSE of a device whose commands are not counted.
fn uncounted_log<D: BlockDevice>(request: &LogSense, device: &D) -> Result<Vec<u8>, Sense> {
    log::log_sense(request, &[0; LogCounter::COUNT], device.thresholds())
}

async fn read<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    extent: Extent,
    in_limit_bytes: u64,
) -> Result<Reply, Sense> {
    let range = geometry.range(extent)?;
    // Whole blocks are read; the transport cuts what it sends.
    let len = range.len.min(in_limit_bytes.next_multiple_of(geometry.block_bytes.into()));
    let data = match len {
        0 => Vec::new(),
        _ => device.read(ByteRange::new(range.offset, len)).await.map_err(geometry.sense_of())?,
    };
    assert_eq!(total(&data), len, "SCSI READ: the device returned another length than was read");
    Ok(Reply { data, wanted_bytes: range.len, ..Reply::good() })
}

async fn write<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    extent: Extent,
    mut data: Vec<Slice>,
) -> Result<Reply, Sense> {
    let range = geometry.range(extent)?;
    // An initiator that sends less than the command says has its whole blocks written.
    let have = total(&data).min(range.len);
    let whole = have - have % u64::from(geometry.block_bytes);
    truncate(&mut data, whole);
    if whole > 0 {
        device.write(range.offset, data).await.map_err(geometry.sense_of())?;
    }
    Ok(Reply { wanted_bytes: range.len, ..Reply::good() })
}

/// All of it or nothing: less than the command says is not written.
async fn write_atomic<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    extent: Extent,
    data: Vec<Slice>,
) -> Result<Reply, Sense> {
    let range = geometry.range(extent)?;
    if total(&data) < range.len {
        return Err(Sense::INCORRECT_AMOUNT_OF_DATA);
    }
    if !range.is_empty() {
        device.write_atomic(range.offset, data).await.map_err(geometry.sense_of())?;
    }
    Ok(Reply { wanted_bytes: range.len, ..Reply::good() })
}

async fn write_and_verify<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    extent: Extent,
    against: Bytchk,
    data: Vec<Slice>,
) -> Result<Reply, Sense> {
    // NOTE: hardened first, then read back.
    let written = write(device, geometry, extent, data.clone()).await?;
    // Only what was written is read back: the initiator may have sent less than the command says.
    let blocks = (total(&data) / u64::from(geometry.block_bytes)).min(extent.blocks.into());
    verify(device, geometry, Extent { blocks: blocks as u32, ..extent }, against, &data).await?;
    Ok(written)
}

async fn verify<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    extent: Extent,
    against: Bytchk,
    data: &[Slice],
) -> Result<Reply, Sense> {
    let range = geometry.range(extent)?;
    let wanted_bytes = match against {
        Bytchk::Medium => 0,
        Bytchk::Data => range.len,
        Bytchk::OneBlock => u64::from(geometry.block_bytes).min(range.len),
    };
    // What was sent must cover all that is to be compared.
    if total(data) < wanted_bytes {
        return Err(Sense::INCORRECT_AMOUNT_OF_DATA);
    }
    // Compared piece by piece, so that what is read for it takes little memory.
    let data = concat(data);
    for piece in range.split(MIB) {
        let stored = device.read(piece).await.map_err(geometry.sense_of())?;
        let mut at = (piece.offset - range.offset) as usize;
        for slice in stored {
            let expected: &mut dyn Iterator<Item = &u8> = match against {
                Bytchk::Medium => continue,
                Bytchk::Data => &mut data[at..].iter(),
                // Pieces and slices are multiples of a block, so the pattern starts anew in each.
                Bytchk::OneBlock => &mut data.iter().cycle(),
            };
            if let Some(differs) = slice.iter().zip(expected).position(|(a, b)| a != b) {
                return Err(Sense::MISCOMPARE.with_information((at + differs) as u64));
            }
            at += slice.len();
        }
    }
    Ok(Reply { wanted_bytes, ..Reply::good() })
}
