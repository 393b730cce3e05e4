//! Executing commands on a device.

use crate::{
    cdb::{Bytchk, Command, Extent},
    inquiry::{self, Port},
    limits, log,
    mode::{self, Modes},
    provision, report_opcodes,
    sense::{Sense, Status},
};
use quoin_base::{ByteRange, MIB};
use quoin_volume::{BlockDevice, DeviceError, Provisioning, Thresholds};
use quoin_world::Slice;

/// A unit's size, logical block and provisioning, as they are at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Logical block, 512 or 4096 bytes.
    pub block_bytes: u32,
    /// What of its space is kept for it.
    pub provisioning: Provisioning,
}

/// What a target knows of a unit besides its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit<'a> {
    /// The port through which it is reached.
    pub port: &'a Port,
    /// What MODE SELECT has changed.
    pub modes: Modes,
    /// It is shown to this host for reading only.
    pub read_only: bool,
}

impl Unit<'_> {
    /// Refuses a command that would change the medium of a write-protected unit.
    ///
    /// # Errors
    /// WRITE PROTECTED, or LOGICAL UNIT SOFTWARE WRITE PROTECTED.
    pub fn check_protection(&self, command: &Command) -> Result<(), Sense> {
        match command.writes() {
            true if self.read_only => Err(Sense::WRITE_PROTECTED),
            true if self.modes.write_protect => Err(Sense::SOFTWARE_WRITE_PROTECTED),
            _ => Ok(()),
        }
    }
}

/// The bytes a command moves if the initiator lets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transfer {
    /// From the initiator.
    pub out_bytes: u64,
    /// To the initiator, at most.
    pub in_bytes: u64,
    /// The initiator must expect to send exactly `out_bytes`: for other commands a difference is but a
    /// residual count.
    pub is_exact: bool,
}

/// What a command came to.
#[derive(Debug)]
pub struct Reply {
    /// SCSI status.
    pub status: Status,
    /// With [`Status::CheckCondition`], why.
    pub sense: Option<Sense>,
    /// The sense goes out in descriptor format, as D_SENSE of the control mode page says.
    pub descriptor_sense: bool,
    /// Data for the initiator, one slice after the other.
    pub data: Vec<Slice>,
    /// Bytes the command wanted to move either way; from it follow the transport's residual counts. May
    /// exceed what `data` holds if the initiator expected less.
    pub wanted_bytes: u64,
}

impl Reply {
    /// GOOD, with nothing to move.
    pub fn good() -> Self {
        Self { status: Status::Good, sense: None, descriptor_sense: false, data: Vec::new(), wanted_bytes: 0 }
    }

    /// CHECK CONDITION.
    pub fn check(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(sense), ..Self::good() }
    }

    /// REQUEST SENSE's answer with `sense` as its parameter data, in descriptor or fixed format.
    pub fn request_sense(sense: Sense, descriptor: bool, allocation: u32) -> Self {
        Self::parameters(sense.data(descriptor), allocation)
    }

    /// The sense data to go with the status, if there is any.
    pub fn sense_data(&self) -> Option<Vec<u8>> {
        self.sense.map(|sense| sense.data(self.descriptor_sense))
    }

    /// GOOD with parameter data, cut to the command's allocation length.
    pub fn parameters(mut data: Vec<u8>, allocation: u32) -> Self {
        data.truncate(allocation as usize);
        let wanted_bytes = data.len() as u64;
        let data = if data.is_empty() { Vec::new() } else { vec![Slice::copy_of(&data)] };
        Self { data, wanted_bytes, ..Self::good() }
    }
}

impl Geometry {
    /// A device's geometry now.
    pub fn of(device: &impl BlockDevice) -> Self {
        let (size_bytes, block_bytes) = (device.size_bytes(), device.block_bytes());
        Self { size_bytes, block_bytes, provisioning: device.provisioning() }
    }

    /// Size in logical blocks.
    pub fn blocks(&self) -> u64 {
        self.size_bytes / u64::from(self.block_bytes.max(1))
    }

    /// The extent in bytes.
    pub(crate) fn range(&self, extent: Extent) -> Result<ByteRange, Sense> {
        match extent.lba.checked_add(extent.blocks.into()) {
            Some(end) if end <= self.blocks() => Ok(ByteRange::new(
                extent.lba * u64::from(self.block_bytes),
                u64::from(extent.blocks) * u64::from(self.block_bytes),
            )),
            _ => Err(Sense::LBA_OUT_OF_RANGE),
        }
    }

    fn range_within(&self, extent: Extent, limit_bytes: u64) -> Result<ByteRange, Sense> {
        let range = self.range(extent)?;
        if range.len > limit_bytes { Err(Sense::INVALID_FIELD_IN_CDB) } else { Ok(range) }
    }
}

impl Command {
    /// Checks the command against the unit, before any data is asked for, and says what it moves.
    ///
    /// # Errors
    /// The sense to answer with.
    pub fn transfer(&self, geometry: Geometry) -> Result<Transfer, Sense> {
        let data_in = |in_bytes| Transfer { in_bytes, ..Transfer::default() };
        let data_out = |out_bytes| Transfer { out_bytes, ..Transfer::default() };
        let block = u64::from(geometry.block_bytes);
        Ok(match *self {
            Command::Read(extent) => data_in(geometry.range_within(extent, limits::TRANSFER_BYTES)?.len),
            Command::Write(extent)
            | Command::WriteAndVerify(extent, _)
            | Command::Verify(extent, Bytchk::Data) => {
                data_out(geometry.range_within(extent, limits::TRANSFER_BYTES)?.len)
            }
            Command::Verify(extent, Bytchk::OneBlock) => {
                data_out(if geometry.range(extent)?.is_empty() { 0 } else { block })
            }
            Command::Verify(extent, Bytchk::Medium)
            | Command::PreFetch(extent)
            | Command::SynchronizeCache(extent) => {
                geometry.range(extent)?;
                Transfer::default()
            }
            // SBC-3 §4.7.3: a thin unit without anchored blocks refuses to make one.
            Command::WriteSame { anchor: true, .. } | Command::Unmap { anchor: true, .. }
                if geometry.provisioning == Provisioning::Thin =>
            {
                return Err(Sense::INVALID_FIELD_IN_CDB);
            }
            Command::WriteSame { extent, no_data, .. } => {
                if geometry.range_within(extent, limits::WRITE_SAME_BYTES)?.is_empty() {
                    return Err(Sense::INVALID_FIELD_IN_CDB);
                }
                Transfer { is_exact: true, ..data_out(if no_data { 0 } else { block }) }
            }
            Command::Unmap { parameter_bytes, .. } if parameter_bytes > limits::PARAMETER_BYTES => {
                return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
            }
            Command::Unmap { parameter_bytes, .. } => data_out(parameter_bytes.into()),
            Command::ModeSelect(request) => data_out(request.parameter_bytes.into()),
            Command::TestUnitReady | Command::StartStopUnit | Command::SendDiagnostic => Transfer::default(),
            Command::ReadCapacity10 => data_in(8),
            Command::GetLbaStatus { lba, .. } if lba >= geometry.blocks() => {
                return Err(Sense::LBA_OUT_OF_RANGE);
            }
            Command::GetLbaStatus { allocation, .. }
            | Command::RequestSense { allocation, .. }
            | Command::Inquiry { allocation, .. }
            | Command::ReportLuns { allocation, .. }
            | Command::ReadDefectData { allocation, .. }
            | Command::ReadCapacity16 { allocation } => data_in(allocation.into()),
            Command::ReportTaskManagement { extended, allocation } => {
                // SPC-4 §6.35: the header must have room.
                if allocation < if extended { 16 } else { 4 } {
                    return Err(Sense::INVALID_FIELD_IN_CDB);
                }
                data_in(allocation.into())
            }
            Command::LogSense(request) => data_in(request.allocation.into()),
            Command::ModeSense(request) => data_in(request.allocation.into()),
            Command::ReportOpcodes(request) => data_in(request.allocation.into()),
        })
    }
}

/// Executes a command that [`Command::transfer`] let pass.
///
/// `data` is what the initiator sent, at most `out_bytes`, in slices cut at multiples of 512 bytes;
/// `in_limit_bytes` is what it is willing to take. REPORT LUNS, REQUEST SENSE and MODE SELECT are the target's to
/// answer: here they see this unit as number 0, without a sense, and change nothing.
pub async fn execute<D: BlockDevice>(
    command: Command,
    device: &D,
    unit: Unit<'_>,
    data: Vec<Slice>,
    in_limit_bytes: u64,
) -> Reply {
    let geometry = Geometry::of(device);
    let outcome = match command {
        Command::TestUnitReady
        | Command::StartStopUnit
        | Command::SendDiagnostic
        | Command::ModeSelect(_)
        | Command::PreFetch(_)
        | Command::SynchronizeCache(_) => Ok(Reply::good()),
        Command::Read(extent) => read(device, geometry, extent, in_limit_bytes).await,
        Command::Write(extent) => write(device, geometry, extent, data).await,
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
        Command::RequestSense { descriptor, allocation } => {
            Ok(Reply::request_sense(Sense::NO_SENSE, descriptor, allocation))
        }
        Command::ReportLuns { allocation, .. } => {
            Ok(Reply::parameters(inquiry::report_luns([[0; 8]].into_iter()), allocation))
        }
        Command::Inquiry { page, allocation } => {
            let has_thresholds = device.thresholds().is_some();
            inquiry::inquiry(page, device.uuid(), geometry, has_thresholds, unit.port)
                .map(|data| Reply::parameters(data, allocation))
        }
        Command::ReadDefectData { long, format, allocation } => {
            Ok(Reply::parameters(inquiry::no_defects(long, format), allocation))
        }
        Command::ReadCapacity10 => Ok(Reply::parameters(inquiry::read_capacity_10(geometry), 8)),
        Command::ReadCapacity16 { allocation } => {
            Ok(Reply::parameters(inquiry::read_capacity_16(geometry), allocation))
        }
        Command::GetLbaStatus { lba, allocation } => {
            provision::lba_status(device, geometry, lba, allocation).await
        }
        Command::ReportTaskManagement { extended, allocation } => {
            Ok(Reply::parameters(report_opcodes::task_management(extended), allocation))
        }
        Command::LogSense(request) => {
            log::sense(&request).map(|data| Reply::parameters(data, request.allocation))
        }
        Command::ModeSense(request) => {
            let thresholds = device.thresholds().map(Thresholds::bytes);
            mode::sense(&request, geometry, thresholds.as_deref(), &unit)
                .map(|data| Reply::parameters(data, request.allocation))
        }
        Command::ReportOpcodes(request) => {
            report_opcodes::report(&request).map(|data| Reply::parameters(data, request.allocation))
        }
    };
    let reply = outcome.unwrap_or_else(Reply::check);
    Reply { descriptor_sense: unit.modes.descriptor_sense, ..reply }
}

pub(crate) fn total(data: &[Slice]) -> u64 {
    data.iter().map(|slice| slice.len() as u64).sum()
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
        _ => device.read(ByteRange::new(range.offset, len)).await.map_err(sense_of(geometry))?,
    };
    Ok(Reply { data, wanted_bytes: range.len, ..Reply::good() })
}

pub(crate) fn sense_of(geometry: Geometry) -> impl Fn(DeviceError) -> Sense {
    move |error| Sense::of_device(&error, geometry.block_bytes)
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
        device.write(range.offset, data).await.map_err(sense_of(geometry))?;
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
    let written = write(device, geometry, extent, data.clone()).await?;
    let blocks = (total(&data) / u64::from(geometry.block_bytes)).min(extent.blocks.into());
    verify(device, geometry, Extent { blocks: blocks as u32, ..extent }, against, &data).await?;
    Ok(written)
}

fn truncate(data: &mut Vec<Slice>, mut len: u64) {
    data.retain_mut(|slice| {
        let keep = len.min(slice.len() as u64);
        len -= keep;
        if keep < slice.len() as u64 {
            *slice = slice.slice(0, keep as usize);
        }
        keep > 0
    });
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
    if total(data) < wanted_bytes {
        return Err(Sense::INCORRECT_AMOUNT_OF_DATA);
    }
    let data = concat(data);
    for piece in range.split(MIB) {
        let stored = device.read(piece).await.map_err(sense_of(geometry))?;
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

pub(crate) fn concat(data: &[Slice]) -> Vec<u8> {
    data.iter().flat_map(|slice| slice.iter().copied()).collect()
}
