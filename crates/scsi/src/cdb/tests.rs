//! Command descriptor blocks.

use super::*;
use crate::report_opcodes::SUPPORTED;
use proptest::prelude::*;

#[test]
fn extents_of_every_form() {
    let parse = |bytes: &[u8]| Command::parse(bytes).unwrap();
    assert_eq!(parse(&[0x08, 0xFF, 2, 3, 0, 0]), Command::Read(Extent { lba: 0x1F_0203, blocks: 256 }));
    assert_eq!(
        parse(&[0x2A, 0x08, 0, 0, 0, 9, 0, 1, 2, 0]),
        Command::Write(Extent { lba: 9, blocks: 0x102 })
    );
    assert_eq!(
        parse(&[0xA8, 0, 0, 0, 1, 0, 0, 0, 0, 7, 0, 0]),
        Command::Read(Extent { lba: 256, blocks: 7 })
    );
    assert_eq!(
        parse(&[0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]),
        Command::Read(Extent { lba: 1 << 32, blocks: 8 })
    );
}

#[test]
fn refusals() {
    let refused = |bytes: &[u8]| Command::parse(bytes).unwrap_err();
    assert_eq!(refused(&[]), Sense::INVALID_OPERATION_CODE);
    assert_eq!(refused(&[0x5D; 16]), Sense::INVALID_OPERATION_CODE);
    assert_eq!(refused(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0]), Sense::INVALID_FIELD_IN_CDB);
    assert_eq!(refused(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 4]), Sense::INVALID_FIELD_IN_CDB);
    assert_eq!(refused(&[0x28, 0, 0, 0]), Sense::INVALID_FIELD_IN_CDB);
    // A fixed disk: its medium can be neither ejected nor locked, and counts as loaded. A power
    // condition goes first.
    assert_eq!(refused(&[0x1B, 0, 0, 0, 2, 0]), Sense::INVALID_FIELD_IN_CDB);
    for (flags, starts) in [(3, true), (1, true), (0, false), (0x12, false)] {
        assert_eq!(Command::parse(&[0x1B, 0, 0, 0, flags, 0]), Ok(Command::StartStopUnit { starts }));
    }
    assert_eq!(refused(&[0x1E, 0, 0, 0, 1, 0]), Sense::INVALID_OPERATION_CODE);
    assert_eq!(refused(&[0x12, 0, 0x80, 0, 36, 0]), Sense::INVALID_FIELD_IN_CDB);
}

#[test]
fn every_command_reported_as_supported_parses() {
    for op in SUPPORTED {
        let mut cdb = [0; 16];
        cdb[0] = op.opcode;
        cdb[1] = op.service_action.unwrap_or(0);
        // SEND DIAGNOSTIC does nothing but its self-test.
        cdb[1] |= if op.opcode == 0x1D { 4 } else { 0 };
        assert!(Command::parse(&cdb[..op.usage.len() + 1]).is_ok(), "{:#x}", op.opcode);
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = Command::parse(&bytes);
    }
}
