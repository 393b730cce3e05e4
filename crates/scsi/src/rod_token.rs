//! Token-based copies (SBC-3 §4.27, §5.20, §5.46; SPC-4 §6.27) on the wire: POPULATE TOKEN, WRITE USING TOKEN and RECEIVE ROD TOKEN
//! INFORMATION, as Windows uses them (ODX).
//!
//! A token stands for what ranges of a unit held when it was made. Whoever has it may have that written elsewhere.

use crate::{
    command::Extent,
    designators,
    fields::{u16_at, u32_at, u64_at},
    sense::Sense,
};
use uuid::Uuid;

/// A token's length.
pub const TOKEN_BYTES: usize = 512;
/// Most range descriptors of a list.
pub(crate) const RANGES_MAX: usize = 64;
/// Most bytes that a token stands for, and that are written at once.
pub const TOKEN_MAX_BYTES: u64 = 1 << 30;
/// The transfer size that is best for hosts.
pub(crate) const TOKEN_OPTIMAL_BYTES: u64 = 64 << 20;
/// Seconds that a token lives after its last use, if the initiator does not say, and at most.
pub(crate) const INACTIVITY_DEFAULT_S: u32 = 30;
pub(crate) const INACTIVITY_MAX_S: u32 = 300;

/// Bytes before the descriptors of the two lists.
const POPULATE_HEADER: usize = 16;
const WRITE_HEADER: usize = 536;
const RANGE_BYTES: usize = 16;
pub(crate) const LIST_MAX_BYTES: u32 = (WRITE_HEADER + RANGES_MAX * RANGE_BYTES) as u32;
/// RTV: the ROD type counts.
const RTV: u8 = 0x02;
const DELETE_TOKEN: u8 = 0x02;
/// ROD types: a point in time copy, any such copy, and zeroes.
const POINT_IN_TIME: u32 = 0x0080_0000;
const ANY_POINT_IN_TIME: u32 = 0x0080_FFFF;
const ZEROES: u32 = 0xFFFF_0001;
/// ROD TOKEN LENGTH: what follows that field.
const REST_BYTES: u16 = TOKEN_BYTES as u16 - 8;
/// Where in a token its secret is.
const SECRET: std::ops::Range<usize> = 128..144;

const INVALID: Sense = Sense::INVALID_FIELD_IN_PARAMETER_LIST;
const SHORT: Sense = Sense::PARAMETER_LIST_LENGTH_ERROR;

/// The parameter list of POPULATE TOKEN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PopulateToken {
    /// How long the token lives after its last use.
    pub inactivity_s: u32,
    /// What it stands for, in this order.
    pub ranges: Vec<Extent>,
}

/// The parameter list of WRITE USING TOKEN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteUsingToken {
    /// Which token.
    pub token: Token,
    /// It is not needed any more.
    pub deletes: bool,
    /// Blocks of what it stands for that are left out.
    pub offset_blocks: u64,
    /// Where it goes, in this order.
    pub ranges: Vec<Extent>,
}

/// What a token says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    /// As many zeroes as are wanted.
    Zeroes,
    /// What was kept under this number, if the secret is right.
    Kept {
        /// COPY MANAGER ROD TOKEN IDENTIFIER.
        id: u64,
        /// What only who has the token knows.
        secret: [u8; 16],
    },
}

/// The ranges of a list whose header ends with their length. None overlaps another.
fn ranges(list: &[u8], header_bytes: usize) -> Result<Vec<Extent>, Sense> {
    let (header, rest) = list.split_at_checked(header_bytes).ok_or(SHORT)?;
    let (descriptors, _) =
        rest.split_at_checked(usize::from(u16_at(header, header_bytes - 2))).ok_or(SHORT)?;
    if descriptors.is_empty() || !descriptors.len().is_multiple_of(RANGE_BYTES) {
        return Err(INVALID);
    }
    if descriptors.len() > RANGES_MAX * RANGE_BYTES {
        return Err(Sense::TOO_MANY_SEGMENT_DESCRIPTORS);
    }
    let extent = |bytes: &[u8]| Extent { lba: u64_at(bytes, 0), blocks: u32_at(bytes, 8) };
    let ranges: Vec<_> = descriptors.chunks(RANGE_BYTES).map(extent).collect();
    let mut sorted: Vec<_> = ranges.iter().filter(|range| range.blocks > 0).collect();
    sorted.sort_unstable_by_key(|range| range.lba);
    let overlap = |pair: &[&Extent]| pair[0].lba.saturating_add(pair[0].blocks.into()) > pair[1].lba;
    if sorted.windows(2).any(overlap) { Err(INVALID) } else { Ok(ranges) }
}

impl PopulateToken {
    /// Reads the parameter list.
    ///
    /// # Errors
    /// PARAMETER LIST LENGTH ERROR if it is cut short; INVALID FIELD IN PARAMETER LIST for another type of token, a time that is too
    /// long, or ranges that overlap.
    pub fn parse(list: &[u8]) -> Result<Self, Sense> {
        let ranges = ranges(list, POPULATE_HEADER)?;
        let (inactivity_s, kind) = (u32_at(list, 4), u32_at(list, 8));
        let is_known = list[2] & RTV == 0 || [POINT_IN_TIME, ANY_POINT_IN_TIME].contains(&kind);
        if !is_known || inactivity_s > INACTIVITY_MAX_S {
            return Err(INVALID);
        }
        let inactivity_s = if inactivity_s == 0 { INACTIVITY_DEFAULT_S } else { inactivity_s };
        Ok(Self { inactivity_s, ranges })
    }
}

impl WriteUsingToken {
    /// Reads the parameter list.
    ///
    /// # Errors
    /// As [`PopulateToken::parse`], and INVALID TOKEN OPERATION for what is no token.
    pub fn parse(list: &[u8]) -> Result<Self, Sense> {
        let ranges = ranges(list, WRITE_HEADER)?;
        let token = Token::parse(&list[16..16 + TOKEN_BYTES])?;
        Ok(Self { token, deletes: list[2] & DELETE_TOKEN != 0, offset_blocks: u64_at(list, 8), ranges })
    }
}

impl Token {
    fn parse(bytes: &[u8]) -> Result<Self, Sense> {
        if u16_at(bytes, 6) != REST_BYTES {
            return Err(Sense::INVALID_TOKEN_LENGTH);
        }
        match u32_at(bytes, 0) {
            ZEROES => Ok(Self::Zeroes),
            POINT_IN_TIME => {
                let mut secret = [0; 16];
                secret.copy_from_slice(&bytes[SECRET]);
                Ok(Self::Kept { id: u64_at(bytes, 8), secret })
            }
            _ => Err(Sense::UNSUPPORTED_TOKEN_TYPE),
        }
    }

    /// A token for so many bytes of a volume.
    pub fn bytes(id: u64, secret: [u8; 16], creator: Uuid, represented_bytes: u64) -> [u8; TOKEN_BYTES] {
        let mut token = [0; TOKEN_BYTES];
        token[..4].copy_from_slice(&POINT_IN_TIME.to_be_bytes());
        token[6..8].copy_from_slice(&REST_BYTES.to_be_bytes());
        token[8..16].copy_from_slice(&id.to_be_bytes());
        // The unit that made it, as an identification descriptor names it.
        token[16..24].copy_from_slice(&[0xE4, 0, 0, 0, 1, designators::designator_type::NAA, 0, 16]);
        token[24..40].copy_from_slice(&designators::naa(creator));
        token[56..64].copy_from_slice(&represented_bytes.to_be_bytes());
        token[SECRET].copy_from_slice(&secret);
        token
    }
}

/// What became of a POPULATE TOKEN or WRITE USING TOKEN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenOutcome {
    /// It was WRITE USING TOKEN.
    pub wrote: bool,
    /// Blocks that the token stands for, or that were written.
    pub blocks: u64,
    /// Why it failed, if it did.
    pub failed: Option<Sense>,
    /// The token that was made.
    pub token: Option<Box<[u8; TOKEN_BYTES]>>,
}

/// RECEIVE ROD TOKEN INFORMATION data.
pub fn rod_token_information(outcome: &TokenOutcome) -> Vec<u8> {
    /// Service actions of the commands that are told of.
    const POPULATE: u8 = 0x10;
    const WRITE: u8 = 0x11;
    /// COPY OPERATION STATUS.
    const COMPLETED: u8 = 0x01;
    const FAILED: u8 = 0x02;
    /// TRANSFER COUNT UNITS: logical blocks.
    const BLOCKS: u8 = 0xF1;
    let mut data = vec![0; 32];
    data[4] = if outcome.wrote { WRITE } else { POPULATE };
    data[5] = if outcome.failed.is_some() { FAILED } else { COMPLETED };
    // COMPLETION STATUS of the command: CHECK CONDITION, with sense data, if it failed.
    let sense = outcome.failed.map_or(Vec::new(), |sense| sense.fixed().to_vec());
    data[12] = if outcome.failed.is_some() { 0x02 } else { 0 };
    (data[13], data[14]) = (sense.len() as u8, sense.len() as u8);
    data[15] = BLOCKS;
    data[16..24].copy_from_slice(&outcome.blocks.to_be_bytes());
    data.extend(sense);
    let tokens = outcome.token.as_ref().map_or(Vec::new(), |token| [&[0, 0][..], &token[..]].concat());
    data.extend((tokens.len() as u32).to_be_bytes());
    data.extend(tokens);
    let available = data.len() as u32 - 4;
    data[..4].copy_from_slice(&available.to_be_bytes());
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(header_bytes: usize, ranges: &[(u64, u32)]) -> Vec<u8> {
        let mut list = vec![0; header_bytes];
        let length = (ranges.len() * RANGE_BYTES) as u16;
        list[header_bytes - 2..].copy_from_slice(&length.to_be_bytes());
        for (lba, blocks) in ranges {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    }

    #[test]
    fn a_token_is_read_as_it_was_made() {
        let secret = [9; 16];
        let token = Token::bytes(5, secret, Uuid::from_u128(1), 4096);
        let mut write = list(WRITE_HEADER, &[(7, 8)]);
        write[16..528].copy_from_slice(&token);
        write[2] = DELETE_TOKEN;
        write[8..16].copy_from_slice(&3_u64.to_be_bytes());
        let read = WriteUsingToken::parse(&write).unwrap();
        assert_eq!((read.token, read.deletes, read.offset_blocks), (Token::Kept { id: 5, secret }, true, 3));
        assert_eq!(read.ranges, [Extent { lba: 7, blocks: 8 }]);
        write[16..20].copy_from_slice(&ZEROES.to_be_bytes());
        assert_eq!(WriteUsingToken::parse(&write).unwrap().token, Token::Zeroes);
        write[22] = 7;
        assert_eq!(WriteUsingToken::parse(&write), Err(Sense::INVALID_TOKEN_LENGTH));
    }

    #[test]
    fn lists_are_checked() {
        let populate = |ranges: &[(u64, u32)]| PopulateToken::parse(&list(POPULATE_HEADER, ranges));
        assert_eq!(populate(&[(9, 1), (0, 9)]).unwrap().ranges.len(), 2);
        assert_eq!(populate(&[(8, 1), (0, 9)]), Err(INVALID));
        assert_eq!(populate(&[]), Err(INVALID));
        assert_eq!(populate(&vec![(0, 0); RANGES_MAX + 1]), Err(Sense::TOO_MANY_SEGMENT_DESCRIPTORS));
        let mut strange = list(POPULATE_HEADER, &[(0, 1)]);
        (strange[2], strange[8]) = (RTV, 1);
        assert_eq!(PopulateToken::parse(&strange), Err(INVALID));
        assert_eq!(PopulateToken::parse(&strange[..20]), Err(SHORT));
    }

    #[test]
    fn the_outcome_holds_the_token() {
        let token = Box::new(Token::bytes(5, [1; 16], Uuid::nil(), 512));
        let good = TokenOutcome { wrote: false, blocks: 1, failed: None, token: Some(token) };
        let data = rod_token_information(&good);
        assert_eq!((data.len(), data[3] as usize + (data[2] as usize) * 256), (32 + 4 + 514, 32 + 514));
        assert_eq!((data[4], data[5], data[23], &data[32..36]), (0x10, 1, 1, &[0, 0, 2, 2][..]));
        let failed = TokenOutcome { failed: Some(INVALID), token: None, wrote: true, blocks: 0 };
        let data = rod_token_information(&failed);
        assert_eq!((data[4], data[5], data[13], data[34]), (0x11, 2, 18, 5));
    }

    proptest! {
        #[test]
        fn any_list_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let _ = PopulateToken::parse(&bytes);
            let _ = WriteUsingToken::parse(&bytes);
        }
    }
}
