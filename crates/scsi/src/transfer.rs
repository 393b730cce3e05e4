//! What a command moves: known, and checked against the unit, before any data is asked for.

use crate::{
    command::{Bytchk, Command},
    extended_copy,
    geometry::Geometry,
    limits, rod_token,
    sense::Sense,
};
use quoin_volume::Provisioning;

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

impl Command {
    /// Checks the command against the unit, before any data is asked for, and says what it moves.
    ///
    /// # Errors
    /// LBA OUT OF RANGE if the command goes beyond the unit's end. INVALID FIELD IN CDB or PARAMETER LIST
    /// LENGTH ERROR if it asks for more than [`limits`] allow, for anchored blocks of a thin unit, or for
    /// less than an answer's header (SPC-4 §6.35).
    pub fn transfer(&self, geometry: Geometry) -> Result<Transfer, Sense> {
        // An initiator may have room for more than there is to tell: no memory is kept for that.
        let data_in = |allocation: u32| {
            let in_bytes = allocation.min(limits::RETURNED_PARAMETER_BYTES).into();
            Transfer { in_bytes, ..Transfer::default() }
        };
        let data_out = |out_bytes: u32| Transfer { out_bytes: out_bytes.into(), ..Transfer::default() };
        if let Some(transfer) = self.transfer_of_blocks(geometry)? {
            return Ok(transfer);
        }
        Ok(match *self {
            Command::ExtendedCopy { parameter_bytes } if parameter_bytes > extended_copy::LIST_MAX_BYTES => {
                return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
            }
            Command::PopulateToken { parameter_bytes, .. }
            | Command::WriteUsingToken { parameter_bytes, .. }
                if parameter_bytes > rod_token::LIST_MAX_BYTES =>
            {
                return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
            }
            Command::ExtendedCopy { parameter_bytes }
            | Command::PopulateToken { parameter_bytes, .. }
            | Command::WriteUsingToken { parameter_bytes, .. } => data_out(parameter_bytes),
            Command::PersistentReserveOut(request) => {
                request.check()?;
                data_out(request.parameter_bytes)
            }
            Command::TestUnitReady
            | Command::StartStopUnit { .. }
            | Command::SendDiagnostic
            | Command::Reserve
            | Command::Release => Transfer::default(),
            Command::ReadCapacity10 => data_in(limits::READ_CAPACITY_10_BYTES),
            Command::GetLbaStatus { lba, .. } if lba >= geometry.blocks() => {
                return Err(Sense::LBA_OUT_OF_RANGE);
            }
            Command::GetLbaStatus { allocation, .. }
            | Command::RequestSense { allocation, .. }
            | Command::Inquiry { allocation, .. }
            | Command::ReportLuns { allocation, .. }
            | Command::ReadDefectData { allocation, .. }
            | Command::PersistentReserveIn { allocation, .. }
            | Command::ReceiveCopyResults { allocation, .. }
            | Command::ReceiveRodTokenInformation { allocation, .. }
            | Command::ReportTargetPortGroups { allocation, .. }
            | Command::ReadCapacity16 { allocation } => data_in(allocation),
            Command::ReportTaskManagement { extended, allocation } => {
                if allocation < if extended { 16 } else { 4 } {
                    return Err(Sense::INVALID_FIELD_IN_CDB);
                }
                data_in(allocation)
            }
            Command::LogSelect(request) => data_out(request.parameter_bytes.into()),
            Command::LogSense(request) => data_in(request.allocation),
            Command::ModeSense(request) => data_in(request.allocation),
            Command::ReportOpcodes(request) => data_in(request.allocation),
            // Moved blocks, which was answered above.
            _ => return Err(Sense::INTERNAL_TARGET_FAILURE),
        })
    }

    /// The same for a command about blocks; `None` for one about the unit.
    fn transfer_of_blocks(&self, geometry: Geometry) -> Result<Option<Transfer>, Sense> {
        let data_in = |in_bytes| Transfer { in_bytes, ..Transfer::default() };
        let data_out = |out_bytes| Transfer { out_bytes, ..Transfer::default() };
        let block = u64::from(geometry.block_bytes);
        Ok(Some(match *self {
            Command::Read(extent) => data_in(geometry.range_within(extent, limits::TRANSFER_BYTES)?.len),
            Command::Write(extent)
            | Command::WriteAndVerify(extent, _)
            | Command::Verify(extent, Bytchk::Data) => {
                data_out(geometry.range_within(extent, limits::TRANSFER_BYTES)?.len)
            }
            Command::OrWrite(extent) => data_out(geometry.range_within(extent, limits::MODIFIED_BYTES)?.len),
            Command::WriteAtomic(extent) => {
                data_out(geometry.range_within(extent, limits::ATOMIC_BYTES)?.len)
            }
            // What is compared, and what is written.
            Command::CompareAndWrite(extent) => {
                let range = geometry.range_within(extent, limits::MODIFIED_BYTES)?;
                Transfer { is_exact: true, ..data_out(2 * range.len) }
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
                geometry.range_to_fill(extent)?;
                Transfer { is_exact: true, ..data_out(if no_data { 0 } else { block }) }
            }
            Command::Unmap { parameter_bytes, .. } if parameter_bytes > limits::PARAMETER_BYTES => {
                return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
            }
            Command::Unmap { parameter_bytes, .. } => data_out(parameter_bytes.into()),
            Command::ModeSelect(request) => data_out(request.parameter_bytes.into()),
            Command::Sanitize(request) => {
                request.check(geometry.block_bytes)?;
                data_out(request.parameter_bytes.into())
            }
            _ => return Ok(None),
        }))
    }
}
