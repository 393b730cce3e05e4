//! Names of metadata pages.

use crate::format::{MAP_FAN_OUT, MAP_LEVELS, PAGE_SPACES, PAGES_END, PageSpace};
use quoin_base::PageNumber;

/// Names a page: of a space, at a level of its map (0: the space's own pages), by index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct PageId {
    pub level: u8,
    pub space: PageSpace,
    pub index: PageNumber,
}

impl PageId {
    pub(crate) fn new(space: PageSpace, index: PageNumber) -> Self {
        Self { space, level: 0, index }
    }

    /// The map page that holds this one's entry; `None` if the root does.
    pub(crate) fn parent(self) -> Option<PageId> {
        (self.level < MAP_LEVELS).then(|| PageId {
            space: self.space,
            level: self.level + 1,
            index: PageNumber(self.index.0 / MAP_FAN_OUT),
        })
    }

    /// The first page whose entry it has, if it is a page of the map.
    pub(crate) fn below(self) -> Option<PageId> {
        let level = self.level.checked_sub(1)?;
        Some(PageId { level, index: PageNumber(self.index.0 * MAP_FAN_OUT), ..self })
    }

    /// Its entry in [`PageId::parent`].
    pub(crate) fn slot(self) -> usize {
        (self.index.0 % MAP_FAN_OUT) as usize * 2
    }

    /// False for a number that the map has no place for.
    pub(crate) fn is_possible(self) -> bool {
        self.level <= MAP_LEVELS && self.index.0 < PAGES_END >> (8 * self.level)
    }

    /// Whether it is kept twice if table slabs have a place for it. Such pages lead to many others, and are few.
    pub(crate) fn is_kept_twice(self) -> bool {
        self.level > 0 || matches!(self.space, PageSpace::Segments | PageSpace::Catalog)
    }

    /// As in the contents of a metadata row.
    pub(crate) fn pack(self) -> u64 {
        (self.space as u64) << 60 | u64::from(self.level) << 56 | self.index.0
    }

    pub(crate) fn unpack(packed: u64) -> Option<Self> {
        let space = *PAGE_SPACES.get((packed >> 60) as usize)?;
        let level = (packed >> 56) as u8 & 0xf;
        Some(Self { space, level, index: PageNumber(packed & ((1 << 56) - 1)) }).filter(|id| id.is_possible())
    }
}
