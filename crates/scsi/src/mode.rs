//! MODE SENSE, MODE SELECT and the mode pages (SPC-4 §6.11, §7.5; SBC-3 §6.4).
//!
//! Two things may be changed and saved, for all initiators of a unit: D_SENSE and SWP of the control
//! page. A reset of the unit brings back what was saved last, or 0.

use crate::{
    command::{ModeSelect, ModeSense},
    geometry::Geometry,
    limits,
    sense::Sense,
    unit::{Modes, Unit},
};

/// A page's code and subpage, its bytes behind the header by default, and which of their bits may change.
struct Page {
    code: u8,
    subpage: u8,
    default: Vec<u8>,
    changeable: &'static [u8],
}

fn fixed(code: u8, subpage: u8, default: Vec<u8>) -> Page {
    Page { code, subpage, default, changeable: &[] }
}

/// Read-write error recovery page.
const AWRE: u8 = 0x80;
const ARRE: u8 = 0x40;
const LBPERE: u8 = 0x80;
/// Control page.
const TST_PER_INITIATOR: u8 = 0x20;
const GLTSD: u8 = 0x02;
const D_SENSE: u8 = 0x04;
const QAM_UNRESTRICTED: u8 = 0x10;
const SWP: u8 = 0x08;
const BUSY_UNLIMITED: u8 = 0xFF;
/// Informational exceptions page.
const DEXCPT: u8 = 0x08;
/// Page and subpage codes.
const RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0A;
const EXCEPTIONS: u8 = 0x1C;
const PROVISIONING: u8 = 0x02;
/// All pages; also the bits of a page's first byte that are its code.
const ALL: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;
/// PC: which values MODE SENSE returns. What is left are the default ones.
const CURRENT: u8 = 0;
const CHANGEABLE: u8 = 1;
const SAVED: u8 = 3;

/// The pages of a unit, with the thresholds of used space of which it tells hosts, in bytes.
fn pages(geometry: Geometry, thresholds: Option<&[u64]>) -> Vec<Page> {
    // Damaged blocks are placed anew when they are written (AWRE, ARRE); thresholds are told of (LBPERE).
    let lbpere = if thresholds.is_some() { LBPERE } else { 0 };
    let mut pages = vec![
        fixed(RECOVERY, 0, vec![AWRE | ARRE, 0, 0, 0, 0, lbpere, 0, 0, 0, 0]),
        // Write cache disabled, read cache enabled.
        fixed(CACHING, 0, vec![0; 18]),
        // A task set for each initiator (TST), no log parameters saved (GLTSD), unrestricted reordering of simple tasks.
        Page {
            code: CONTROL,
            subpage: 0,
            default: vec![
                TST_PER_INITIATOR | GLTSD,
                QAM_UNRESTRICTED,
                0,
                0,
                0,
                0,
                BUSY_UNLIMITED,
                BUSY_UNLIMITED,
                0,
                0,
            ],
            changeable: &[D_SENSE, 0, SWP],
        },
        // Control extension: sense data of up to 20 bytes.
        fixed(CONTROL, 1, [&[0, 0, 20][..], &[0; 25]].concat()),
        // Informational exceptions: none are reported (DEXCPT); events tell of what happens.
        fixed(EXCEPTIONS, 0, vec![DEXCPT, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    if let Some(thresholds) = thresholds {
        pages.push(fixed(EXCEPTIONS, PROVISIONING, provisioning(geometry, thresholds)));
    }
    pages
}

/// The logical block provisioning page (SBC-3 §6.4.7): told of to all (SITUA = 0), soft thresholds of used mapping
/// resources, armed increasing.
fn provisioning(geometry: Geometry, thresholds: &[u64]) -> Vec<u8> {
    const ENABLED: u8 = 0x80;
    const ARMED_INCREASING: u8 = 0x01;
    const USED_RESOURCES: u8 = 0x02;
    let set_bytes = limits::THRESHOLD_SET_BYTES.next_multiple_of(u64::from(geometry.block_bytes));
    let mut page = vec![0; 12];
    for bytes in thresholds {
        let sets = u32::try_from(bytes / set_bytes).unwrap_or(u32::MAX);
        page.extend([ENABLED | ARMED_INCREASING, USED_RESOURCES, 0, 0]);
        page.extend(sets.to_be_bytes());
    }
    page
}
/// DPOFUA: the bits are accepted.
const DPOFUA: u8 = 0x10;
/// WP: writes are refused.
const WP: u8 = 0x80;
/// PS in a page's first byte: the page can be saved.
const PS: u8 = 0x80;
/// SPF in a page's first byte: it is one of several subpages.
const SPF: u8 = 0x40;

impl Page {
    fn header(&self) -> Vec<u8> {
        let len = self.default.len();
        let first = self.code | if self.is_savable() { PS } else { 0 };
        match self.subpage {
            0 => vec![first, len as u8],
            subpage => vec![first | SPF, subpage, (len >> 8) as u8, len as u8],
        }
    }

    /// What may be changed can be saved.
    fn is_savable(&self) -> bool {
        !self.changeable.is_empty()
    }

    fn mask(&self, at: usize) -> u8 {
        self.changeable.get(at).copied().unwrap_or(0)
    }

    fn with(&self, modes: Modes) -> Vec<u8> {
        let mut bytes = self.default.clone();
        if (self.code, self.subpage) == (CONTROL, 0) {
            bytes[0] |= if modes.descriptor_sense { D_SENSE } else { 0 };
            bytes[2] |= if modes.write_protect { SWP } else { 0 };
        }
        bytes
    }
}

/// The unit's size as a block descriptor holds it.
fn block_descriptor(geometry: Geometry, long: bool) -> Vec<u8> {
    let blocks = geometry.blocks();
    if long {
        [&blocks.to_be_bytes()[..], &[0; 4], &geometry.block_bytes.to_be_bytes()].concat()
    } else {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        [blocks.to_be_bytes(), geometry.block_bytes.to_be_bytes()].concat()
    }
}

pub(crate) fn sense(
    request: &ModeSense,
    geometry: Geometry,
    thresholds: Option<&[u64]>,
    unit: &Unit<'_>,
) -> Result<Vec<u8>, Sense> {
    // Which pages, and which of their values.
    let wanted = |page: &&Page| {
        (request.page == ALL || page.code == request.page)
            && (request.subpage == ALL_SUBPAGES || page.subpage == request.subpage)
    };
    let mut shown = Vec::new();
    for page in pages(geometry, thresholds).iter().filter(wanted) {
        // Among all pages, one that cannot be saved is shown as it always is.
        if request.page_control == SAVED && request.page != ALL && !page.is_savable() {
            return Err(Sense::SAVING_NOT_SUPPORTED);
        }
        shown.extend(page.header());
        match request.page_control {
            CURRENT => shown.extend(page.with(unit.modes)),
            SAVED => shown.extend(page.with(unit.saved)),
            CHANGEABLE => shown.extend((0..page.default.len()).map(|at| page.mask(at))),
            _ => shown.extend(&page.default),
        }
    }
    // All pages have subpages 0 and FFh only.
    if shown.is_empty() || request.page == ALL && !matches!(request.subpage, 0 | ALL_SUBPAGES) {
        return Err(Sense::INVALID_FIELD_IN_CDB);
    }
    // MODE DATA LENGTH counts what follows its own field.
    let descriptor = if request.no_block_descriptor {
        Vec::new()
    } else {
        block_descriptor(geometry, request.long_block_descriptor)
    };
    let protected = unit.read_only || unit.modes.write_protect;
    let specific = DPOFUA | if protected { WP } else { 0 };
    let header = if request.long {
        let len = (6 + descriptor.len() + shown.len()) as u16;
        let [high, low] = len.to_be_bytes();
        let long = u8::from(request.long_block_descriptor && !request.no_block_descriptor);
        vec![high, low, 0, specific, long, 0, 0, descriptor.len() as u8]
    } else {
        let len = (3 + descriptor.len() + shown.len()) as u8;
        vec![len, 0, specific, descriptor.len() as u8]
    };
    Ok([header, descriptor, shown].concat())
}

/// What a unit's modes become by MODE SELECT with this parameter list; `thresholds` as its device has them, in bytes.
///
/// # Errors
/// The list is cut short, names another page or length, or changes what may not be changed; nothing is changed.
pub fn mode_select(
    request: &ModeSelect,
    list: &[u8],
    geometry: Geometry,
    thresholds: Option<&[u64]>,
    modes: Modes,
) -> Result<Modes, Sense> {
    const SHORT: Sense = Sense::PARAMETER_LIST_LENGTH_ERROR;
    const INVALID: Sense = Sense::INVALID_FIELD_IN_PARAMETER_LIST;
    if list.is_empty() {
        return Ok(modes);
    }
    let header_bytes = if request.long { 8 } else { 4 };
    let (header, rest) = list.split_at_checked(header_bytes).ok_or(SHORT)?;
    let (long, descriptor_bytes) = if request.long {
        (header[4] & 1 != 0, usize::from(u16::from_be_bytes([header[6], header[7]])))
    } else {
        (false, usize::from(header[3]))
    };
    // The block descriptor may only repeat what is so.
    let (descriptor, mut rest) = rest.split_at_checked(descriptor_bytes).ok_or(SHORT)?;
    if !descriptor.is_empty() {
        let current = block_descriptor(geometry, long);
        let length_at = current.len() - 3;
        let count_at = if long { 8 } else { 4 };
        // A count of 0 leaves the size as it is.
        let is_current = descriptor.len() == current.len()
            && descriptor[length_at..] == current[length_at..]
            && (descriptor[..count_at] == current[..count_at]
                || descriptor[..count_at].iter().all(|b| *b == 0));
        if !is_current {
            return Err(INVALID);
        }
    }
    let pages = pages(geometry, thresholds);
    // Pages are taken one by one, but the caller has the new modes only if all of them are good.
    let mut selected = modes;
    while let [first, second, ..] = *rest {
        let subpage = if first & SPF != 0 { second } else { 0 };
        let page = pages.iter().find(|page| (page.code, page.subpage) == (first & ALL, subpage));
        let page = page.filter(|page| (first & SPF != 0) == (page.subpage != 0)).ok_or(INVALID)?;
        let header = page.header();
        let (given, after) = rest.split_at_checked(header.len() + page.default.len()).ok_or(SHORT)?;
        if given[1..header.len()] != header[1..] {
            return Err(INVALID);
        }
        let given = &given[header.len()..];
        let current = page.with(modes);
        if (0..current.len()).any(|at| (given[at] ^ current[at]) & !page.mask(at) != 0) {
            return Err(INVALID);
        }
        if (page.code, page.subpage) == (CONTROL, 0) {
            selected =
                Modes { descriptor_sense: given[0] & D_SENSE != 0, write_protect: given[2] & SWP != 0 };
        }
        rest = after;
    }
    if rest.is_empty() { Ok(selected) } else { Err(SHORT) }
}
