//! How far the committer has learnt which blocks have which content: see `learn.rs`.

use quoin_base::PageNumber;

/// How far it is.
#[derive(Clone, Copy)]
pub(super) struct Learning {
    pub next: PageNumber,
    /// What comes from here on is noted when it is added.
    pub end: PageNumber,
}

impl Learning {
    /// Of a table that has so many pages when it is opened.
    pub(super) fn new(pages: u64) -> Self {
        Self { next: PageNumber(0), end: PageNumber(pages) }
    }
}
