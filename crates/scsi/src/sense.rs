//! Status and sense data (SPC-4 §4.5).

use quoin_volume::DeviceError;

/// SCSI status byte (SAM-5 §5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// The command did what it says.
    Good = 0x00,
    /// It did not; sense data says why.
    CheckCondition = 0x02,
    /// Try again later.
    Busy = 0x08,
    /// Another initiator has reserved the unit.
    ReservationConflict = 0x18,
    /// No room for another command.
    TaskSetFull = 0x28,
}

/// The class of a sense (SPC-4 table 43).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the standard's names")]
pub enum SenseKey {
    NoSense = 0x0,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    CopyAborted = 0xA,
    AbortedCommand = 0xB,
    Miscompare = 0xE,
}

/// Why a command failed: key, additional sense code and qualifier, and the INFORMATION field if there is
/// something to put there (an LBA for medium errors, a byte offset for miscompares), or how far
/// work has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sense {
    /// The class.
    pub key: SenseKey,
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
    /// INFORMATION.
    pub information: Option<u64>,
    /// PROGRESS INDICATION, in parts of 65,536.
    pub progress: Option<u16>,
}

macro_rules! senses {
    ($($name:ident = $key:ident, $asc:literal, $ascq:literal;)*) => {
        impl Sense {$(
            #[doc = concat!(stringify!($name), ", named as in SPC-4 annex F.")]
            pub const $name: Sense =
                Sense { key: SenseKey::$key, asc: $asc, ascq: $ascq, information: None, progress: None };
        )*}
    };
}

senses! {
    NO_SENSE = NoSense, 0x00, 0x00;
    BECOMING_READY = NotReady, 0x04, 0x01;
    SANITIZE_IN_PROGRESS = NotReady, 0x04, 0x1B;
    MANUAL_INTERVENTION_REQUIRED = NotReady, 0x04, 0x03;
    UNRECOVERED_READ_ERROR = MediumError, 0x11, 0x00;
    SANITIZE_COMMAND_FAILED = MediumError, 0x31, 0x03;
    INTERNAL_TARGET_FAILURE = HardwareError, 0x44, 0x00;
    PARAMETER_LIST_LENGTH_ERROR = IllegalRequest, 0x1A, 0x00;
    INVALID_OPERATION_CODE = IllegalRequest, 0x20, 0x00;
    LBA_OUT_OF_RANGE = IllegalRequest, 0x21, 0x00;
    INVALID_FIELD_IN_CDB = IllegalRequest, 0x24, 0x00;
    LUN_NOT_SUPPORTED = IllegalRequest, 0x25, 0x00;
    UNSUPPORTED_TOKEN_TYPE = IllegalRequest, 0x23, 0x01;
    TOKEN_UNKNOWN = IllegalRequest, 0x23, 0x04;
    INVALID_TOKEN_LENGTH = IllegalRequest, 0x23, 0x0A;
    INVALID_FIELD_IN_PARAMETER_LIST = IllegalRequest, 0x26, 0x00;
    TOO_MANY_TARGET_DESCRIPTORS = IllegalRequest, 0x26, 0x06;
    UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE = IllegalRequest, 0x26, 0x07;
    TOO_MANY_SEGMENT_DESCRIPTORS = IllegalRequest, 0x26, 0x08;
    UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE = IllegalRequest, 0x26, 0x09;
    OPERATION_IN_PROGRESS = IllegalRequest, 0x00, 0x16;
    COPY_ABORTED = CopyAborted, 0x00, 0x00;
    COPY_TARGET_DATA_UNDERRUN = CopyAborted, 0x0D, 0x04;
    COPY_TARGET_DEVICE_NOT_REACHABLE = CopyAborted, 0x0D, 0x02;
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = IllegalRequest, 0x26, 0x04;
    INSUFFICIENT_REGISTRATION_RESOURCES = IllegalRequest, 0x55, 0x04;
    INVALID_MESSAGE_ERROR = IllegalRequest, 0x49, 0x00;
    SAVING_NOT_SUPPORTED = IllegalRequest, 0x39, 0x00;
    MEDIUM_MAY_HAVE_CHANGED = UnitAttention, 0x28, 0x00;
    POWER_ON_OCCURRED = UnitAttention, 0x29, 0x01;
    DEVICE_RESET_OCCURRED = UnitAttention, 0x29, 0x03;
    LOG_PARAMETERS_CHANGED = UnitAttention, 0x2A, 0x02;
    MODE_PARAMETERS_CHANGED = UnitAttention, 0x2A, 0x01;
    RESERVATIONS_PREEMPTED = UnitAttention, 0x2A, 0x03;
    RESERVATIONS_RELEASED = UnitAttention, 0x2A, 0x04;
    REGISTRATIONS_PREEMPTED = UnitAttention, 0x2A, 0x05;
    CAPACITY_CHANGED = UnitAttention, 0x2A, 0x09;
    THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = UnitAttention, 0x38, 0x07;
    COMMANDS_CLEARED_BY_ANOTHER_INITIATOR = UnitAttention, 0x2F, 0x00;
    INQUIRY_DATA_CHANGED = UnitAttention, 0x3F, 0x03;
    REPORTED_LUNS_CHANGED = UnitAttention, 0x3F, 0x0E;
    WRITE_PROTECTED = DataProtect, 0x27, 0x00;
    SOFTWARE_WRITE_PROTECTED = DataProtect, 0x27, 0x02;
    SPACE_ALLOCATION_FAILED = DataProtect, 0x27, 0x07;
    PROTOCOL_SERVICE_CRC_ERROR = AbortedCommand, 0x47, 0x05;
    UNEXPECTED_UNSOLICITED_DATA = AbortedCommand, 0x0C, 0x0C;
    INCORRECT_AMOUNT_OF_DATA = AbortedCommand, 0x0C, 0x0D;
    MISCOMPARE = Miscompare, 0x1D, 0x00;
}

/// RESPONSE CODE: current errors, in fixed or descriptor format.
const CURRENT_FIXED: u8 = 0x70;
const CURRENT_DESCRIPTOR: u8 = 0x72;
/// VALID: the INFORMATION field holds something.
const VALID: u8 = 0x80;
/// Type and additional length of an information descriptor (SPC-4 §4.5.2.2), which is 12 bytes long.
const INFORMATION: [u8; 2] = [0x00, 0x0A];
const INFORMATION_BYTES: u8 = 12;
/// The same of a sense key specific descriptor (§4.5.2.4), which is 8 bytes long.
const KEY_SPECIFIC: [u8; 2] = [0x02, 0x06];
const KEY_SPECIFIC_BYTES: u8 = 8;
/// SKSV: the sense key specific field holds something.
const SKSV: u8 = 0x80;

impl Sense {
    /// The same with an INFORMATION field.
    pub fn with_information(self, information: u64) -> Self {
        Self { information: Some(information), ..self }
    }

    /// The same with a PROGRESS INDICATION.
    pub fn with_progress(self, progress: u16) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// What a host is told of a device's error. `block_bytes` is the volume's logical block.
    pub fn of_device(error: &DeviceError, block_bytes: u32) -> Self {
        match error {
            DeviceError::OutOfRange { .. } => Self::LBA_OUT_OF_RANGE,
            DeviceError::NoSpace { .. } => Self::SPACE_ALLOCATION_FAILED,
            DeviceError::Stopped { .. } => Self::MANUAL_INTERVENTION_REQUIRED,
            DeviceError::ReadOnly { .. } => Self::WRITE_PROTECTED,
            DeviceError::Medium { offset, .. } => {
                Self::UNRECOVERED_READ_ERROR.with_information(offset / u64::from(block_bytes.max(1)))
            }
            DeviceError::Offline { .. } => Self::BECOMING_READY,
            DeviceError::Deleted { .. } => Self::LUN_NOT_SUPPORTED,
            DeviceError::Replaced { .. } => Self::MEDIUM_MAY_HAVE_CHANGED,
        }
    }

    /// Fixed format (SPC-4 §4.5.3). Information that does not fit 32 bits is left out, as VALID says.
    pub fn fixed(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0] = CURRENT_FIXED;
        bytes[2] = self.key as u8;
        // ADDITIONAL SENSE LENGTH: what follows the first eight bytes.
        bytes[7] = 10;
        (bytes[12], bytes[13]) = (self.asc, self.ascq);
        if let Some(information) = self.information.and_then(|i| u32::try_from(i).ok()) {
            bytes[0] |= VALID;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        if let Some(progress) = self.progress {
            bytes[15] = SKSV;
            bytes[16..].copy_from_slice(&progress.to_be_bytes());
        }
        bytes
    }

    /// In the format that D_SENSE of the control mode page asks for.
    pub fn data(&self, descriptor: bool) -> Vec<u8> {
        if descriptor { self.descriptor() } else { self.fixed().to_vec() }
    }

    /// Descriptor format (SPC-4 §4.5.2).
    pub fn descriptor(&self) -> Vec<u8> {
        let mut bytes = vec![CURRENT_DESCRIPTOR, self.key as u8, self.asc, self.ascq, 0, 0, 0, 0];
        if let Some(information) = self.information {
            let [kind, len] = INFORMATION;
            bytes[7] = INFORMATION_BYTES;
            bytes.extend_from_slice(&[kind, len, VALID, 0]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(progress) = self.progress {
            let ([kind, len], [high, low]) = (KEY_SPECIFIC, progress.to_be_bytes());
            bytes[7] += KEY_SPECIFIC_BYTES;
            bytes.extend_from_slice(&[kind, len, 0, 0, SKSV, high, low, 0]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_layouts() {
        let sense = Sense::UNRECOVERED_READ_ERROR.with_information(0x0102_0304);
        assert_eq!(sense.fixed(), [0xF0, 0, 3, 1, 2, 3, 4, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0]);
        assert_eq!(sense.with_information(1 << 40).fixed()[0], 0x70);
        assert_eq!(
            sense.descriptor(),
            [0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 1, 2, 3, 4]
        );
        let sanitizing = Sense::SANITIZE_IN_PROGRESS.with_progress(0x1234);
        assert_eq!(
            sanitizing.fixed(),
            [0x70, 0, 2, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x04, 0x1B, 0, 0x80, 0x12, 0x34]
        );
        assert_eq!(
            sanitizing.descriptor(),
            [0x72, 2, 0x04, 0x1B, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 0x12, 0x34, 0]
        );
    }

    #[test]
    fn device_errors_tell_hosts_what_to_do() {
        let volume = String::from("v");
        let offline = DeviceError::Offline { volume: volume.clone(), reason: "x".into() };
        let medium = DeviceError::Medium { volume: volume.clone(), offset: 8192, reason: "x".into() };
        let codes = |e: &DeviceError| {
            let s = Sense::of_device(e, 512);
            (s.key as u8, s.asc, s.ascq, s.information)
        };
        assert_eq!(codes(&DeviceError::NoSpace { volume: volume.clone() }), (7, 0x27, 7, None));
        assert_eq!(codes(&DeviceError::ReadOnly { volume: volume.clone() }), (7, 0x27, 0, None));
        assert_eq!(codes(&DeviceError::Stopped { volume: volume.clone() }), (2, 4, 3, None));
        assert_eq!(codes(&offline), (2, 4, 1, None));
        assert_eq!(codes(&medium), (3, 0x11, 0, Some(16)));
        assert_eq!(codes(&DeviceError::Replaced { volume: volume.clone() }), (6, 0x28, 0, None));
        assert_eq!(codes(&DeviceError::Deleted { volume }), (5, 0x25, 0, None));
    }
}
