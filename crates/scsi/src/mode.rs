//! MODE SENSE, MODE SELECT and the mode pages (SPC-4 §6.11, §7.5; SBC-3 §6.4).
//!
//! Two things may be changed, for all initiators of a unit: D_SENSE and SWP of the control page. Nothing is saved:
//! a reset of the unit brings both back to 0.

use crate::{
    cdb::{ModeSelect, ModeSense},
    execute::{Geometry, Unit},
    sense::Sense,
};

/// What MODE SELECT has changed of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modes {
    /// D_SENSE: sense data in descriptor format.
    pub descriptor_sense: bool,
    /// SWP: writes are refused.
    pub write_protect: bool,
}

/// A page's code and subpage, its bytes behind the header by default, and which of their bits may change.
struct Page {
    code: u8,
    subpage: u8,
    default: &'static [u8],
    changeable: &'static [u8],
}

const fn fixed(code: u8, subpage: u8, default: &'static [u8]) -> Page {
    Page { code, subpage, default, changeable: &[] }
}

const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;
const CONTROL: u8 = 0x0A;
const ALL: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;

const PAGES: &[Page] = &[
    // Read-write error recovery: damaged blocks are placed anew when they are written (AWRE, ARRE).
    fixed(0x01, 0, &[0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    // Caching: write cache disabled, read cache enabled.
    fixed(0x08, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    // Control: a task set for each initiator (TST), no log parameters saved (GLTSD), unrestricted reordering of
    // simple tasks.
    Page {
        code: CONTROL,
        subpage: 0,
        default: &[0x22, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0],
        changeable: &[D_SENSE, 0, SWP],
    },
    // Control extension: sense data of up to 20 bytes.
    fixed(CONTROL, 1, &[0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    // Informational exceptions: none are reported (DEXCPT); events tell of what happens.
    fixed(0x1C, 0, &[0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
];
/// DPOFUA: the bits are accepted.
const DPOFUA: u8 = 0x10;
/// WP: writes are refused.
const WP: u8 = 0x80;
/// PS or SPF in a page's first byte.
const SPF: u8 = 0x40;

impl Page {
    fn header(&self) -> Vec<u8> {
        let len = self.default.len();
        match self.subpage {
            0 => vec![self.code, len as u8],
            subpage => vec![self.code | SPF, subpage, (len >> 8) as u8, len as u8],
        }
    }

    fn mask(&self, at: usize) -> u8 {
        self.changeable.get(at).copied().unwrap_or(0)
    }

    fn current(&self, modes: Modes) -> Vec<u8> {
        let mut bytes = self.default.to_vec();
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
    match long {
        true => [&blocks.to_be_bytes()[..], &[0; 4], &geometry.block_bytes.to_be_bytes()].concat(),
        false => {
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            [blocks.to_be_bytes(), geometry.block_bytes.to_be_bytes()].concat()
        }
    }
}

pub(crate) fn sense(request: &ModeSense, geometry: Geometry, unit: &Unit<'_>) -> Result<Vec<u8>, Sense> {
    if request.page_control == 3 {
        return Err(Sense::SAVING_NOT_SUPPORTED);
    }
    let wanted = |page: &&Page| {
        (request.page == ALL || page.code == request.page)
            && (request.subpage == ALL_SUBPAGES || page.subpage == request.subpage)
    };
    let mut pages = Vec::new();
    for page in PAGES.iter().filter(wanted) {
        pages.extend(page.header());
        match request.page_control {
            0 => pages.extend(page.current(unit.modes)),
            1 => pages.extend((0..page.default.len()).map(|at| page.mask(at))),
            _ => pages.extend(page.default),
        }
    }
    // All pages have subpages 0 and FFh only.
    if pages.is_empty() || request.page == ALL && !matches!(request.subpage, 0 | ALL_SUBPAGES) {
        return Err(Sense::INVALID_FIELD_IN_CDB);
    }
    let descriptor = match request.no_block_descriptor {
        true => Vec::new(),
        false => block_descriptor(geometry, request.long_block_descriptor),
    };
    let protected = unit.read_only || unit.modes.write_protect;
    let specific = DPOFUA | if protected { WP } else { 0 };
    let header = if request.long {
        let len = (6 + descriptor.len() + pages.len()) as u16;
        let [high, low] = len.to_be_bytes();
        let long = u8::from(request.long_block_descriptor && !request.no_block_descriptor);
        vec![high, low, 0, specific, long, 0, 0, descriptor.len() as u8]
    } else {
        let len = (3 + descriptor.len() + pages.len()) as u8;
        vec![len, 0, specific, descriptor.len() as u8]
    };
    Ok([header, descriptor, pages].concat())
}

/// What a unit's modes become by MODE SELECT with this parameter list.
///
/// # Errors
/// The list is cut short, names another page or length, or changes what may not be changed; nothing is changed.
pub fn mode_select(
    request: &ModeSelect,
    list: &[u8],
    geometry: Geometry,
    modes: Modes,
) -> Result<Modes, Sense> {
    const SHORT: Sense = Sense::PARAMETER_LIST_LENGTH_ERROR;
    const INVALID: Sense = Sense::INVALID_FIELD_IN_PARAMETER_LIST;
    if list.is_empty() {
        return Ok(modes);
    }
    let header_bytes = if request.long { 8 } else { 4 };
    let (header, rest) = list.split_at_checked(header_bytes).ok_or(SHORT)?;
    let (long, descriptor_bytes) = match request.long {
        true => (header[4] & 1 != 0, usize::from(u16::from_be_bytes([header[6], header[7]]))),
        false => (false, usize::from(header[3])),
    };
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
    let mut selected = modes;
    while let [first, second, ..] = *rest {
        let subpage = if first & SPF != 0 { second } else { 0 };
        let page = PAGES.iter().find(|page| (page.code, page.subpage) == (first & 0x3F, subpage));
        let page = page.filter(|page| (first & SPF != 0) == (page.subpage != 0)).ok_or(INVALID)?;
        let header = page.header();
        let (given, after) = rest.split_at_checked(header.len() + page.default.len()).ok_or(SHORT)?;
        if given[1..header.len()] != header[1..] {
            return Err(INVALID);
        }
        let given = &given[header.len()..];
        let current = page.current(modes);
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
