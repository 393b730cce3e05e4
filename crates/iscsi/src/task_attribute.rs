//! Task attributes (SAM-5 §8.6). What they ask for is kept by [`crate::task_set`].

/// A task attribute (RFC 7143 §11.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskAttribute {
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

/// ATTR of a SCSI Command's flags, and its values. Untagged counts as simple.
const ATTR: u8 = 0x07;
const UNTAGGED: u8 = 0;
const SIMPLE: u8 = 1;
const ORDERED: u8 = 2;
const HEAD_OF_QUEUE: u8 = 3;
const ACA: u8 = 4;

impl TaskAttribute {
    /// Of the flags of a SCSI Command; `None` for a reserved one.
    pub(crate) fn of(flags: u8) -> Option<Self> {
        match flags & ATTR {
            UNTAGGED | SIMPLE => Some(Self::Simple),
            ORDERED => Some(Self::Ordered),
            HEAD_OF_QUEUE => Some(Self::HeadOfQueue),
            ACA => Some(Self::Aca),
            _ => None,
        }
    }

    /// Others may have to wait for it. (An ACA task is answered at once: there is never such a condition.)
    pub(crate) fn holds_others(self) -> bool {
        matches!(self, Self::Ordered | Self::HeadOfQueue)
    }
}
