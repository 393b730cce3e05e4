//! MODE SENSE and the mode pages (SPC-4 §7.5, SBC-3 §6.4). Nothing is changeable.

use crate::{cdb::ModeSense, execute::Geometry, sense::Sense};

/// Caching: write cache disabled, read cache enabled.
const CACHING: [u8; 20] = [0x08, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Control: fixed-format sense, no log parameters saved (GLTSD), unrestricted reordering of simple tasks.
const CONTROL: [u8; 12] = [0x0A, 10, 0x02, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0];
const PAGES: [&[u8]; 2] = [&CACHING, &CONTROL];
/// DPOFUA: the bits are accepted.
const DEVICE_SPECIFIC: u8 = 0x10;

pub(crate) fn sense(request: &ModeSense, geometry: Geometry) -> Result<Vec<u8>, Sense> {
    if request.page_control == 3 {
        return Err(Sense::SAVING_NOT_SUPPORTED);
    }
    let mut pages = Vec::new();
    for page in PAGES.iter().filter(|page| request.page == 0x3F || page[0] == request.page) {
        pages.extend_from_slice(&page[..2]);
        match request.page_control {
            1 => pages.resize(pages.len() + page.len() - 2, 0),
            _ => pages.extend_from_slice(&page[2..]),
        }
    }
    if pages.is_empty() || !matches!(request.subpage, 0 | 0xFF) {
        return Err(Sense::INVALID_FIELD_IN_CDB);
    }
    let blocks = geometry.blocks();
    let descriptor = match (request.no_block_descriptor, request.long_block_descriptor) {
        (true, _) => Vec::new(),
        (false, true) => [&blocks.to_be_bytes()[..], &[0; 4], &geometry.block_bytes.to_be_bytes()].concat(),
        (false, false) => {
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            [blocks.to_be_bytes(), geometry.block_bytes.to_be_bytes()].concat()
        }
    };
    let header = if request.long {
        let len = (6 + descriptor.len() + pages.len()) as u16;
        let [high, low] = len.to_be_bytes();
        let long = u8::from(request.long_block_descriptor && !request.no_block_descriptor);
        vec![high, low, 0, DEVICE_SPECIFIC, long, 0, 0, descriptor.len() as u8]
    } else {
        let len = (3 + descriptor.len() + pages.len()) as u8;
        vec![len, 0, DEVICE_SPECIFIC, descriptor.len() as u8]
    };
    Ok([header, descriptor, pages].concat())
}
