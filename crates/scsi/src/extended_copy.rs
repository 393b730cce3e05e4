//! EXTENDED COPY with short list identifiers (SPC-4 §6.4) and RECEIVE COPY RESULTS (§6.25) on the wire: which blocks of which units
//! go where.

use crate::{
    designators::{self, designator_type},
    fields::{u16_at, u32_at, u64_at},
    opcode::{self, service_action},
    rod_token,
    sense::Sense,
};
use uuid::Uuid;

/// SERVICE ACTION of RECEIVE COPY RESULTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyResults {
    /// COPY STATUS of the list with this identifier.
    CopyStatus(u8),
    /// OPERATING PARAMETERS.
    OperatingParameters,
}

/// Most target descriptors, and most segment descriptors, of a list.
const TARGETS_MAX: usize = 16;
const SEGMENTS_MAX: usize = 64;
/// Bytes of the list's header, and of descriptors.
const HEADER_BYTES: usize = 16;
const TARGET_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;
const DESCRIPTORS_MAX_BYTES: usize = TARGETS_MAX * TARGET_BYTES + SEGMENTS_MAX * SEGMENT_BYTES;
/// Longest parameter list.
pub(crate) const LIST_MAX_BYTES: u32 = 64 << 10;
/// Most bytes that one segment descriptor copies: as many blocks as it can count.
const SEGMENT_MAX_BYTES: u32 = 65_535 * 512;

/// Copies that may be under way for each initiator, and altogether: as many as there may be commands.
const CONCURRENT: u8 = 255;
/// DATA SEGMENT GRANULARITY, a power of two in bytes.
const GRANULARITY: u8 = 9;

/// DESCRIPTOR TYPE CODEs: identification descriptor of a target, block device to block device.
const IDENTIFICATION: u8 = 0xE4;
const BLOCK_TO_BLOCK: u8 = 0x02;
/// DC of a segment: the number of blocks is that of the destination.
const DESTINATION_COUNT: u8 = 0x02;
/// LIST ID USAGE: 11b does without an identifier, 10b lets go of the status when the copy is over.
const LIST_ID_USAGE: u8 = 0x18;
const NO_LIST_ID: u8 = 0x18;
const DISCARD: u8 = 0x10;

/// A copy that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyList {
    /// LIST IDENTIFIER, by which its status is asked for; `None` if it will not be.
    pub id: Option<u8>,
    /// The host does not ask for its status once it is over.
    pub may_discard: bool,
    /// The segments in their order.
    pub segments: Vec<Segment>,
}

/// One of the units between which blocks are copied, by the designator that its descriptor has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Designator {
    kind: u8,
    bytes: [u8; 20],
    len: u8,
}

/// Blocks to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where from; `None` if the list has no such descriptor.
    pub source: Option<Designator>,
    /// Where to.
    pub destination: Option<Designator>,
    /// How many blocks, of the source or the destination.
    pub blocks: u16,
    /// They are blocks of the destination.
    pub counts_destination: bool,
    /// First block of the source.
    pub source_lba: u64,
    /// First block of the destination.
    pub destination_lba: u64,
}

impl Designator {
    /// Whether it designates this volume: by its NAA identifier, or by the vendor's.
    pub fn is_of(&self, uuid: Uuid) -> bool {
        let given = &self.bytes[..usize::from(self.len)];
        match self.kind & DESIGNATOR_TYPE {
            designator_type::NAA => given == designators::naa(uuid),
            _ => false,
        }
    }
}

/// DESIGNATOR TYPE of a descriptor's byte 5.
const DESIGNATOR_TYPE: u8 = 0x0F;

impl CopyList {
    /// Reads the parameter list of EXTENDED COPY; `None` if it is empty: then nothing is to be copied.
    ///
    /// # Errors
    /// PARAMETER LIST LENGTH ERROR if it is cut short or longer than OPERATING PARAMETERS allow; TOO MANY or UNSUPPORTED TARGET
    /// or SEGMENT DESCRIPTORs; INVALID FIELD IN PARAMETER LIST for inline data.
    pub fn parse(list: &[u8]) -> Result<Option<Self>, Sense> {
        const SHORT: Sense = Sense::PARAMETER_LIST_LENGTH_ERROR;
        if list.is_empty() {
            return Ok(None);
        }
        let (header, rest) = list.split_at_checked(HEADER_BYTES).ok_or(SHORT)?;
        let length = |at: usize| u32_at(header, at) as usize;
        let (targets, segments, inline) = (usize::from(u16_at(header, 2)), length(8), length(12));
        if targets + segments > DESCRIPTORS_MAX_BYTES {
            return Err(SHORT);
        }
        let (targets, rest) = rest.split_at_checked(targets).ok_or(SHORT)?;
        let (mut segments, _) = rest.split_at_checked(segments).ok_or(SHORT)?;
        if inline != 0 {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
        if targets.len() > TARGETS_MAX * TARGET_BYTES {
            return Err(Sense::TOO_MANY_TARGET_DESCRIPTORS);
        }
        let targets = targets.chunks(TARGET_BYTES).map(designator).collect::<Result<Vec<_>, _>>()?;
        let mut read = Vec::new();
        while !segments.is_empty() {
            if segments[0] != BLOCK_TO_BLOCK {
                return Err(Sense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE);
            }
            let (segment, after) = segments.split_at_checked(SEGMENT_BYTES).ok_or(SHORT)?;
            if usize::from(u16_at(segment, 2)) != SEGMENT_BYTES - 4 {
                return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
            }
            if read.len() == SEGMENTS_MAX {
                return Err(Sense::TOO_MANY_SEGMENT_DESCRIPTORS);
            }
            let target = |at: usize| targets.get(usize::from(u16_at(segment, at))).copied();
            read.push(Segment {
                source: target(4),
                destination: target(6),
                blocks: u16_at(segment, 10),
                counts_destination: segment[1] & DESTINATION_COUNT != 0,
                source_lba: u64_at(segment, 12),
                destination_lba: u64_at(segment, 20),
            });
            segments = after;
        }
        let usage = header[1] & LIST_ID_USAGE;
        let id = (usage != NO_LIST_ID).then_some(header[0]);
        Ok(Some(Self { id, may_discard: usage == DISCARD, segments: read }))
    }
}

fn designator(descriptor: &[u8]) -> Result<Designator, Sense> {
    match descriptor {
        [IDENTIFICATION, ..] if descriptor.len() == TARGET_BYTES => {
            let (kind, len) = (descriptor[5], descriptor[7]);
            let mut bytes = [0; 20];
            bytes.copy_from_slice(&descriptor[8..28]);
            if usize::from(len) > bytes.len() {
                return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
            }
            Ok(Designator { kind, bytes, len })
        }
        [IDENTIFICATION, ..] => Err(Sense::PARAMETER_LIST_LENGTH_ERROR),
        _ => Err(Sense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE),
    }
}

/// OPERATING PARAMETERS data.
pub fn operating_parameters() -> Vec<u8> {
    let mut data = vec![0; 44];
    data[8..10].copy_from_slice(&(TARGETS_MAX as u16).to_be_bytes());
    data[10..12].copy_from_slice(&(SEGMENTS_MAX as u16).to_be_bytes());
    data[12..16].copy_from_slice(&(DESCRIPTORS_MAX_BYTES as u32).to_be_bytes());
    data[16..20].copy_from_slice(&SEGMENT_MAX_BYTES.to_be_bytes());
    data[34..36].copy_from_slice(&u16::from(CONCURRENT).to_be_bytes());
    data[36] = CONCURRENT;
    data[37] = GRANULARITY;
    let types = [BLOCK_TO_BLOCK, IDENTIFICATION];
    data[43] = types.len() as u8;
    data.extend(types);
    let available = data.len() as u32 - 4;
    data[..4].copy_from_slice(&available.to_be_bytes());
    data
}

/// The third-party copy page of vital product data (SPC-4 §7.8.17): commands, limits and descriptors.
pub(crate) fn third_party_copy_page(block_bytes: u32) -> Vec<u8> {
    const ROD_LIMITS: u16 = 0x0000;
    const SUPPORTED_COMMANDS: u16 = 0x0001;
    const PARAMETER_DATA: u16 = 0x0004;
    const SUPPORTED_DESCRIPTORS: u16 = 0x0008;
    const GENERAL_OPERATIONS: u16 = 0x8001;
    let mut page = Vec::new();
    let mut add = |kind: u16, body: &[u8]| {
        // Descriptors are multiples of 4 bytes long.
        let len = (body.len() + 4).next_multiple_of(4) - 4;
        page.extend(kind.to_be_bytes());
        page.extend((len as u16).to_be_bytes());
        page.extend(body);
        page.resize(page.len() + len - body.len(), 0);
    };
    // What a token may stand for, and how long it lives: what Windows looks for.
    let mut limits = [0; 32];
    let blocks = |bytes: u64| (bytes / u64::from(block_bytes)).to_be_bytes();
    limits[6..8].copy_from_slice(&(rod_token::RANGES_MAX as u16).to_be_bytes());
    limits[8..12].copy_from_slice(&rod_token::INACTIVITY_MAX_S.to_be_bytes());
    limits[12..16].copy_from_slice(&rod_token::INACTIVITY_DEFAULT_S.to_be_bytes());
    limits[16..24].copy_from_slice(&blocks(rod_token::TOKEN_MAX_BYTES));
    limits[24..32].copy_from_slice(&blocks(rod_token::TOKEN_OPTIMAL_BYTES));
    add(ROD_LIMITS, &limits);
    let commands = [
        opcode::THIRD_PARTY_COPY_OUT,
        3,
        service_action::EXTENDED_COPY,
        service_action::POPULATE_TOKEN,
        service_action::WRITE_USING_TOKEN,
        opcode::THIRD_PARTY_COPY_IN,
        3,
        service_action::COPY_STATUS,
        service_action::OPERATING_PARAMETERS,
        service_action::RECEIVE_ROD_TOKEN_INFORMATION,
    ];
    add(SUPPORTED_COMMANDS, &[&[commands.len() as u8][..], &commands].concat());
    let mut limits = [0; 28];
    limits[4..6].copy_from_slice(&(TARGETS_MAX as u16).to_be_bytes());
    limits[6..8].copy_from_slice(&(SEGMENTS_MAX as u16).to_be_bytes());
    limits[8..12].copy_from_slice(&(DESCRIPTORS_MAX_BYTES as u32).to_be_bytes());
    add(PARAMETER_DATA, &limits);
    add(SUPPORTED_DESCRIPTORS, &[2, BLOCK_TO_BLOCK, IDENTIFICATION]);
    let mut general = [0; 32];
    general[..4].copy_from_slice(&u32::from(CONCURRENT).to_be_bytes());
    general[4..8].copy_from_slice(&u32::from(CONCURRENT).to_be_bytes());
    general[8..12].copy_from_slice(&SEGMENT_MAX_BYTES.to_be_bytes());
    general[12] = GRANULARITY;
    add(GENERAL_OPERATIONS, &general);
    page
}

/// What became of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyStatus {
    /// Whether all was copied; `None` while it is under way.
    pub succeeded: Option<bool>,
    /// Segments that were gone through.
    pub segments: u16,
    /// Bytes that were copied.
    pub bytes: u32,
}

/// COPY STATUS data.
pub fn copy_status(status: CopyStatus) -> Vec<u8> {
    let code = match status.succeeded {
        None => 0,
        Some(true) => 1,
        Some(false) => 2,
    };
    let [high, low] = status.segments.to_be_bytes();
    let mut data = vec![0, 0, 0, 8, code, high, low, 0];
    data.extend(status.bytes.to_be_bytes());
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: Uuid = Uuid::from_u128(0x0193_2c07_1234_7abc_8def_0123_4567_89ab);

    fn list(targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
        let (targets, segments) = (targets.concat(), segments.concat());
        let mut list = vec![7, 0];
        list.extend((targets.len() as u16).to_be_bytes());
        list.extend([0; 4]);
        list.extend((segments.len() as u32).to_be_bytes());
        list.extend([0; 4]);
        [list, targets, segments].concat()
    }

    fn target() -> Vec<u8> {
        let mut target = vec![IDENTIFICATION, 0, 0, 0, 1, designator_type::NAA, 0, 16];
        target.extend(designators::naa(UUID));
        target.resize(TARGET_BYTES, 0);
        target
    }

    fn segment(source: u16, destination: u16) -> Vec<u8> {
        let mut segment = vec![BLOCK_TO_BLOCK, 0, 0, 24];
        segment.extend(source.to_be_bytes());
        segment.extend(destination.to_be_bytes());
        segment.extend([0, 0, 1, 2]);
        segment.extend(5_u64.to_be_bytes());
        segment.extend(9_u64.to_be_bytes());
        segment
    }

    #[test]
    fn lists_are_read() {
        let read = CopyList::parse(&list(&[target()], &[segment(0, 1)])).unwrap().unwrap();
        assert_eq!((read.id, read.may_discard, read.segments.len()), (Some(7), false, 1));
        let Segment { source, destination, blocks, source_lba, destination_lba, .. } = read.segments[0];
        assert!(source.unwrap().is_of(UUID) && !source.unwrap().is_of(Uuid::nil()));
        assert_eq!((destination, blocks, source_lba, destination_lba), (None, 0x102, 5, 9));
        assert_eq!(CopyList::parse(&[]), Ok(None));
        let usage = |usage: u8| {
            let mut list = list(&[target()], &[segment(0, 1)]);
            list[1] = usage;
            let read = CopyList::parse(&list).unwrap().unwrap();
            (read.id, read.may_discard)
        };
        assert_eq!([usage(DISCARD), usage(NO_LIST_ID)], [(Some(7), true), (None, false)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |targets: &[Vec<u8>], segments: &[Vec<u8>]| {
            CopyList::parse(&list(targets, segments)).unwrap_err()
        };
        let (many, segments) = (vec![target(); TARGETS_MAX + 1], vec![segment(0, 0); SEGMENTS_MAX + 1]);
        assert_eq!(parse(&many, &[segment(0, 0)]), Sense::TOO_MANY_TARGET_DESCRIPTORS);
        assert_eq!(parse(&[target()], &segments), Sense::TOO_MANY_SEGMENT_DESCRIPTORS);
        assert_eq!(parse(&many, &segments), Sense::PARAMETER_LIST_LENGTH_ERROR);
        assert_eq!(parse(&[vec![0xE0; 32]], &[]), Sense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE);
        assert_eq!(parse(&[target()], &[vec![3; 28]]), Sense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE);
        let whole = list(&[target()], &[segment(0, 0)]);
        for len in 1..whole.len() {
            assert_eq!(CopyList::parse(&whole[..len]), Err(Sense::PARAMETER_LIST_LENGTH_ERROR), "{len}");
        }
    }

    proptest! {
        #[test]
        fn any_list_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), targets in 0_usize..3) {
            let _ = CopyList::parse(&bytes);
            let _ = CopyList::parse(&list(&vec![target(); targets], &[bytes]));
        }
    }
}
