//! LOG SENSE (SPC-4 §6.8, §7.3): which pages there are, and informational exceptions, of which there are none.

use crate::{command::LogSense, sense::Sense};

const SUPPORTED: u8 = 0x00;
const SUBPAGES: u8 = 0xFF;
/// SPF: the page is one of several subpages.
const SPF: u8 = 0x40;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2F;

/// FORMAT AND LINKING of a parameter: a list in binary.
const BINARY_LIST: u8 = 0x03;
const NO_TEMPERATURE: u8 = 0xFF;

pub(crate) fn sense(request: &LogSense) -> Result<Vec<u8>, Sense> {
    let (first, body) = match (request.page, request.subpage) {
        (SUPPORTED, 0) => (SUPPORTED, vec![SUPPORTED, INFORMATIONAL_EXCEPTIONS]),
        (SUPPORTED, SUBPAGES) => {
            (SUPPORTED | SPF, vec![SUPPORTED, 0, SUPPORTED, SUBPAGES, INFORMATIONAL_EXCEPTIONS, 0])
        }
        // One parameter: no additional sense code, no temperature.
        (INFORMATIONAL_EXCEPTIONS, 0) if request.pointer == 0 => {
            (INFORMATIONAL_EXCEPTIONS, vec![0, 0, BINARY_LIST, 4, 0, 0, NO_TEMPERATURE, 0])
        }
        _ => return Err(Sense::INVALID_FIELD_IN_CDB),
    };
    let [high, low] = (body.len() as u16).to_be_bytes();
    Ok([vec![first, request.subpage, high, low], body].concat())
}
