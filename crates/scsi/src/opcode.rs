//! Operation codes and service actions, named as in SPC-4 and SBC-3. A number behind a name is the length of
//! the CDB.

pub(crate) const TEST_UNIT_READY: u8 = 0x00;
pub(crate) const REQUEST_SENSE: u8 = 0x03;
pub(crate) const READ_6: u8 = 0x08;
pub(crate) const WRITE_6: u8 = 0x0A;
pub(crate) const INQUIRY: u8 = 0x12;
pub(crate) const MODE_SELECT_6: u8 = 0x15;
pub(crate) const RESERVE_6: u8 = 0x16;
pub(crate) const RELEASE_6: u8 = 0x17;
pub(crate) const MODE_SENSE_6: u8 = 0x1A;
pub(crate) const START_STOP_UNIT: u8 = 0x1B;
pub(crate) const SEND_DIAGNOSTIC: u8 = 0x1D;
pub(crate) const READ_CAPACITY_10: u8 = 0x25;
pub(crate) const READ_10: u8 = 0x28;
pub(crate) const WRITE_10: u8 = 0x2A;
pub(crate) const WRITE_AND_VERIFY_10: u8 = 0x2E;
pub(crate) const VERIFY_10: u8 = 0x2F;
pub(crate) const PRE_FETCH_10: u8 = 0x34;
pub(crate) const SYNCHRONIZE_CACHE_10: u8 = 0x35;
pub(crate) const READ_DEFECT_DATA_10: u8 = 0x37;
pub(crate) const WRITE_SAME_10: u8 = 0x41;
pub(crate) const UNMAP: u8 = 0x42;
pub(crate) const SANITIZE: u8 = 0x48;
pub(crate) const LOG_SELECT: u8 = 0x4C;
pub(crate) const LOG_SENSE: u8 = 0x4D;
pub(crate) const MODE_SELECT_10: u8 = 0x55;
pub(crate) const RESERVE_10: u8 = 0x56;
pub(crate) const RELEASE_10: u8 = 0x57;
pub(crate) const MODE_SENSE_10: u8 = 0x5A;
pub(crate) const PERSISTENT_RESERVE_IN: u8 = 0x5E;
pub(crate) const PERSISTENT_RESERVE_OUT: u8 = 0x5F;
pub(crate) const THIRD_PARTY_COPY_OUT: u8 = 0x83;
pub(crate) const THIRD_PARTY_COPY_IN: u8 = 0x84;
pub(crate) const READ_16: u8 = 0x88;
pub(crate) const WRITE_16: u8 = 0x8A;
pub(crate) const COMPARE_AND_WRITE: u8 = 0x89;
pub(crate) const OR_WRITE_16: u8 = 0x8B;
pub(crate) const WRITE_AND_VERIFY_16: u8 = 0x8E;
pub(crate) const VERIFY_16: u8 = 0x8F;
pub(crate) const PRE_FETCH_16: u8 = 0x90;
pub(crate) const SYNCHRONIZE_CACHE_16: u8 = 0x91;
pub(crate) const WRITE_SAME_16: u8 = 0x93;
pub(crate) const WRITE_ATOMIC_16: u8 = 0x9C;
pub(crate) const SERVICE_ACTION_IN_16: u8 = 0x9E;
pub(crate) const REPORT_LUNS: u8 = 0xA0;
pub(crate) const MAINTENANCE_IN: u8 = 0xA3;
pub(crate) const READ_12: u8 = 0xA8;
pub(crate) const WRITE_12: u8 = 0xAA;
pub(crate) const WRITE_AND_VERIFY_12: u8 = 0xAE;
pub(crate) const VERIFY_12: u8 = 0xAF;
pub(crate) const READ_DEFECT_DATA_12: u8 = 0xB7;

/// Service actions of SERVICE ACTION IN (16), MAINTENANCE IN, THIRD-PARTY COPY OUT and IN, and
/// SANITIZE.
pub(crate) mod service_action {
    pub(crate) const READ_CAPACITY_16: u8 = 0x10;
    pub(crate) const GET_LBA_STATUS: u8 = 0x12;
    pub(crate) const OVERWRITE: u8 = 0x01;
    pub(crate) const BLOCK_ERASE: u8 = 0x02;
    pub(crate) const EXIT_FAILURE_MODE: u8 = 0x1F;
    pub(crate) const EXTENDED_COPY: u8 = 0x00;
    pub(crate) const POPULATE_TOKEN: u8 = 0x10;
    pub(crate) const WRITE_USING_TOKEN: u8 = 0x11;
    pub(crate) const RECEIVE_ROD_TOKEN_INFORMATION: u8 = 0x07;
    pub(crate) const COPY_STATUS: u8 = 0x00;
    pub(crate) const OPERATING_PARAMETERS: u8 = 0x03;
    pub(crate) const REPORT_TARGET_PORT_GROUPS: u8 = 0x0A;
    pub(crate) const REPORT_SUPPORTED_OPERATION_CODES: u8 = 0x0C;
    pub(crate) const REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS: u8 = 0x0D;
}

/// What the upper three bits of an operation code say: how long its CDB is (SPC-4 §4.2.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Bytes6,
    Bytes10,
    Bytes12,
    Bytes16,
}

impl Form {
    /// Returns the form of CDBs with this operation code; `None` if its group has no fixed length.
    pub(crate) fn of(opcode: u8) -> Option<Self> {
        match opcode >> 5 {
            0 => Some(Self::Bytes6),
            1 | 2 => Some(Self::Bytes10),
            4 => Some(Self::Bytes16),
            5 => Some(Self::Bytes12),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bytes6 => 6,
            Self::Bytes10 => 10,
            Self::Bytes12 => 12,
            Self::Bytes16 => 16,
        }
    }
}
