//! SANITIZE (SBC-4 §5.34): what its CDB and the parameter list of OVERWRITE say.

use crate::{fields::u16_at, opcode::service_action, sense::Sense};

/// What a SANITIZE asks for. CRYPTOGRAPHIC ERASE is missing: a volume has no key of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SanitizeAction {
    /// OVERWRITE: write a pattern to every block.
    Overwrite,
    /// BLOCK ERASE: unmap every block.
    BlockErase,
    /// EXIT FAILURE MODE: use the unit although the last SANITIZE failed.
    ExitFailureMode,
}

/// SANITIZE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sanitize {
    /// SERVICE ACTION.
    pub action: SanitizeAction,
    /// IMMED: answer before the work is done.
    pub immediate: bool,
    /// AUSE: EXIT FAILURE MODE is allowed if this one fails.
    pub unrestricted: bool,
    /// PARAMETER LIST LENGTH.
    pub parameter_bytes: u16,
}

/// Bytes of the parameter list before the pattern.
const HEADER_BYTES: usize = 4;
/// INVERT, TEST and OVERWRITE COUNT.
const INVERT: u8 = 0x80;
const TEST: u8 = 0x60;
const OVERWRITE_COUNT: u8 = 0x1F;

impl Sanitize {
    /// Takes the fields of a CDB.
    ///
    /// # Errors
    /// INVALID FIELD IN CDB for a reserved bit, an unknown service action, or a parameter list with
    /// an action that has none.
    pub(crate) fn parse(cdb: &[u8; 16]) -> Result<Self, Sense> {
        const IMMED: u8 = 0x80;
        const ZNR: u8 = 0x40;
        const AUSE: u8 = 0x20;
        const SERVICE_ACTION: u8 = 0x1F;
        let action = match cdb[1] & SERVICE_ACTION {
            service_action::OVERWRITE => SanitizeAction::Overwrite,
            service_action::BLOCK_ERASE => SanitizeAction::BlockErase,
            service_action::EXIT_FAILURE_MODE => SanitizeAction::ExitFailureMode,
            _ => return Err(Sense::INVALID_FIELD_IN_CDB),
        };
        let parameter_bytes = u16_at(cdb, 7);
        // ZNR is for zoned units. Bytes 2 to 6 are reserved.
        let is_reserved = cdb[1] & ZNR != 0 || cdb[2..7].iter().any(|byte| *byte != 0);
        if is_reserved || action != SanitizeAction::Overwrite && parameter_bytes != 0 {
            return Err(Sense::INVALID_FIELD_IN_CDB);
        }
        let (immediate, unrestricted) = (cdb[1] & IMMED != 0, cdb[1] & AUSE != 0);
        Ok(Self { action, immediate, unrestricted, parameter_bytes })
    }

    /// Checks the length of the parameter list against the logical block.
    ///
    /// # Errors
    /// INVALID FIELD IN CDB if the list has no pattern, or room for one that is longer than a
    /// block.
    pub(crate) fn check(&self, block_bytes: u32) -> Result<(), Sense> {
        let pattern_bytes = usize::from(self.parameter_bytes).checked_sub(HEADER_BYTES);
        let fits = |bytes: usize| (1..=block_bytes as usize).contains(&bytes);
        match self.action {
            SanitizeAction::Overwrite if !pattern_bytes.is_some_and(fits) => Err(Sense::INVALID_FIELD_IN_CDB),
            _ => Ok(()),
        }
    }
}

/// The parameter list of OVERWRITE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overwrite {
    /// OVERWRITE COUNT: how often every block is written, 1 to 31 times.
    pub passes: u8,
    /// INVERT: every second pass writes the pattern with all bits inverted.
    pub inverts: bool,
    /// INITIALIZATION PATTERN: begins anew in every block, and repeats until the block is full.
    pub pattern: Vec<u8>,
}

impl Overwrite {
    /// Reads the parameter list for a unit with this logical block.
    ///
    /// # Errors
    /// PARAMETER LIST LENGTH ERROR if it is cut short. INVALID FIELD IN PARAMETER LIST for a
    /// reserved bit, a test, no pass, or a
    /// pattern that is empty or longer than a block.
    pub fn parse(list: &[u8], block_bytes: u32) -> Result<Self, Sense> {
        let (header, rest) = list.split_at_checked(HEADER_BYTES).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
        let (passes, len) = (header[0] & OVERWRITE_COUNT, usize::from(u16_at(header, 2)));
        let is_valid = header[0] & TEST == 0 && header[1] == 0 && passes > 0;
        if !is_valid || len == 0 || len > block_bytes as usize {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
        let pattern = rest.get(..len).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?.to_vec();
        Ok(Self { passes, inverts: header[0] & INVERT != 0, pattern })
    }

    /// Returns the block that a pass writes; passes count from 0.
    pub fn block(&self, pass: u8, block_bytes: u32) -> Vec<u8> {
        let mask = if self.inverts && pass % 2 == 1 { 0xFF } else { 0 };
        self.pattern.iter().cycle().take(block_bytes as usize).map(|byte| byte ^ mask).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Geometry};
    use proptest::prelude::*;
    use quoin_volume::Provisioning;

    fn parse(flags: u8, parameter_bytes: u16) -> Result<Command, Sense> {
        let [high, low] = parameter_bytes.to_be_bytes();
        Command::parse(&[0x48, flags, 0, 0, 0, 0, 0, high, low, 0])
    }

    fn sanitize(action: SanitizeAction, immediate: bool, unrestricted: bool, bytes: u16) -> Command {
        Command::Sanitize(Sanitize { action, immediate, unrestricted, parameter_bytes: bytes })
    }

    #[test]
    fn cdbs_say_what_is_asked_for() {
        assert_eq!(parse(0x82, 0), Ok(sanitize(SanitizeAction::BlockErase, true, false, 0)));
        assert_eq!(parse(0x21, 516), Ok(sanitize(SanitizeAction::Overwrite, false, true, 516)));
        assert_eq!(parse(0x1F, 0), Ok(sanitize(SanitizeAction::ExitFailureMode, false, false, 0)));
        let refused = Err(Sense::INVALID_FIELD_IN_CDB);
        // CRYPTOGRAPHIC ERASE, other service actions, ZNR, and lists that nobody asked for.
        for (flags, bytes) in [(3, 0), (0, 0), (0x1E, 0), (0x42, 0), (0x41, 516), (2, 8), (0x1F, 8)] {
            assert_eq!(parse(flags, bytes), refused, "{flags:#x} {bytes}");
        }
        for reserved in 2..7 {
            let mut cdb = [0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0];
            cdb[reserved] = 1;
            assert_eq!(Command::parse(&cdb), refused, "byte {reserved}");
        }
    }

    #[test]
    fn the_length_of_the_list_is_checked_before_it_is_sent() {
        for block_bytes in [512, 4096] {
            let geometry = Geometry { size_bytes: 1 << 20, block_bytes, provisioning: Provisioning::Thin };
            let moves = |bytes: u16| {
                let command = parse(1, bytes).unwrap();
                command.transfer(geometry).map(|transfer| transfer.out_bytes)
            };
            let longest = block_bytes as u16 + 4;
            assert_eq!((moves(5), moves(longest)), (Ok(5), Ok(longest.into())));
            for bytes in [0, 1, 4, longest + 1] {
                assert_eq!(moves(bytes), Err(Sense::INVALID_FIELD_IN_CDB), "{bytes}");
            }
        }
    }

    #[test]
    fn lists_are_checked() {
        let list = |flags: u8, len: u8| [&[flags, 0, 0, len][..], &[0xA5, 1, 2]].concat();
        let read = Overwrite::parse(&list(0x82, 3), 512).unwrap();
        assert_eq!((read.passes, read.inverts, &read.pattern[..]), (2, true, &[0xA5, 1, 2][..]));
        assert_eq!(read.block(0, 8), [0xA5, 1, 2, 0xA5, 1, 2, 0xA5, 1]);
        assert_eq!(read.block(1, 4), [0x5A, 0xFE, 0xFD, 0x5A]);
        assert_eq!(Overwrite::parse(&list(0x1F, 1), 512).unwrap().passes, 31);
        let invalid = Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
        // No pass, tests, and no pattern.
        for (flags, len) in [(0, 3), (0x80, 3), (0x21, 3), (0x41, 3), (0x61, 3), (1, 0)] {
            assert_eq!(Overwrite::parse(&list(flags, len), 512), invalid, "{flags:#x} {len}");
        }
        assert_eq!(Overwrite::parse(&[1, 1, 0, 1, 0], 512), invalid, "a reserved byte");
        assert_eq!(Overwrite::parse(&[&[1, 0, 2, 1][..], &[0; 513]].concat(), 512), invalid);
        assert_eq!(Overwrite::parse(&list(1, 4), 512), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
        assert_eq!(Overwrite::parse(&[1, 0, 0], 512), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
    }

    proptest! {
        #[test]
        fn any_list_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            if let Ok(read) = Overwrite::parse(&bytes, 512) {
                prop_assert!((1..=31).contains(&read.passes));
                prop_assert_eq!(read.block(0, 512).len(), 512);
            }
        }
    }
}
