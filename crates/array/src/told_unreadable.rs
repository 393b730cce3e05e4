//! When the volumes are named that cannot be read: once for each drive that more is lost with, and once when all is back.

use quoin_base::DriveIndex;
use std::collections::BTreeSet;

/// What was told of volumes that cannot be read.
#[derive(Default)]
pub(crate) struct ToldUnreadable {
    /// The drives that were away when it was looked for last.
    drives: BTreeSet<DriveIndex>,
    is_looking: bool,
    /// An event named volumes.
    is_told: bool,
}

/// What is to be done about volumes that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Nothing,
    Look,
    /// To tell that all can be read again.
    TellAll,
}

impl ToldUnreadable {
    /// These drives are away, and something cannot be read, or all can.
    pub(crate) fn due(&mut self, away: &BTreeSet<DriveIndex>, is_any: bool) -> Due {
        // One that was back may be lost again.
        self.drives.retain(|drive| away.contains(drive));
        if self.is_looking {
            Due::Nothing
        } else if is_any && !away.is_subset(&self.drives) {
            (self.is_looking, self.drives) = (true, away.clone());
            Due::Look
        } else if !is_any && std::mem::take(&mut self.is_told) {
            self.drives.clear();
            Due::TellAll
        } else {
            Due::Nothing
        }
    }

    /// The look has ended: it found something to tell of or nothing, or (`None`) came to no end and is due again.
    pub(crate) fn looked(&mut self, found: Option<bool>) {
        self.is_looking = false;
        match found {
            Some(found) => self.is_told |= found,
            None => self.drives.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drives<const N: usize>(drives: [u16; N]) -> BTreeSet<DriveIndex> {
        drives.into_iter().map(DriveIndex).collect()
    }

    #[test]
    fn volumes_are_named_once_for_each_loss_and_their_return_once() {
        let mut told = ToldUnreadable::default();
        assert_eq!(told.due(&drives([1]), false), Due::Nothing, "all can be read without it");
        assert_eq!(told.due(&drives([1, 2]), true), Due::Look);
        assert_eq!(told.due(&drives([1, 2, 3]), true), Due::Nothing, "a look is under way");
        told.looked(Some(true));
        assert_eq!(told.due(&drives([1, 2, 3]), true), Due::Look, "one more is lost");
        told.looked(None);
        assert_eq!(told.due(&drives([1, 2, 3]), true), Due::Look, "it came to no end");
        told.looked(Some(true));
        assert_eq!(told.due(&drives([1, 2, 3]), true), Due::Nothing);
        assert_eq!(told.due(&drives([1, 2]), true), Due::Nothing, "one is back");
        assert_eq!(told.due(&drives([1, 2, 3]), true), Due::Look, "and lost again");
        told.looked(Some(true));
        assert_eq!(told.due(&drives([3]), false), Due::TellAll);
        assert_eq!(told.due(&drives([]), false), Due::Nothing);
        // What nothing was told of is not said to be back.
        assert_eq!(told.due(&drives([4, 5]), true), Due::Look);
        told.looked(Some(false));
        assert_eq!(told.due(&drives([]), false), Due::Nothing);
    }
}
