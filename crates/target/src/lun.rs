//! Logical unit numbers (SAM-5 §4.7).

use std::fmt;

/// A logical unit number, 0 to [`Lun::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lun(u16);

impl Lun {
    /// The highest number that fits the flat addressing method.
    pub const MAX: u16 = 0x3FFF;

    /// The address method in the first two bytes (SAM-5 §4.7.7): 00b peripheral device, 01b flat space.
    const METHOD: u16 = 0xC000;
    const PERIPHERAL: u16 = 0x0000;
    const FLAT_SPACE: u16 = 0x4000;
    /// Numbers from this one on do not fit peripheral device addressing, which has the bus in the other bits.
    const PERIPHERAL_END: u16 = 256;

    /// The number, if it is not above [`Lun::MAX`].
    pub fn new(number: u16) -> Option<Lun> {
        (number <= Self::MAX).then_some(Lun(number))
    }

    /// The number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The 8 bytes on the wire: peripheral device addressing below 256, flat space addressing from there.
    pub fn to_wire(self) -> [u8; 8] {
        let first = if self.0 < Self::PERIPHERAL_END { self.0 } else { Self::FLAT_SPACE | self.0 };
        let [high, low] = first.to_be_bytes();
        [high, low, 0, 0, 0, 0, 0, 0]
    }

    /// From the 8 bytes on the wire, by either addressing method; `None` for any other method or bus.
    pub fn from_wire(wire: [u8; 8]) -> Option<Lun> {
        let first = u16::from_be_bytes([wire[0], wire[1]]);
        let is_single_level = wire[2..].iter().all(|&byte| byte == 0);
        match first & Self::METHOD {
            Self::PERIPHERAL if is_single_level && first < Self::PERIPHERAL_END => Some(Lun(first)),
            Self::FLAT_SPACE if is_single_level => Some(Lun(first & Self::MAX)),
            _ => None,
        }
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
