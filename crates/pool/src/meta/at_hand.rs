//! A page kept at hand: work on neighbours uses the same page many times over, and asks neither its lock nor the index again.
//!
//! Only pages that nothing takes out of the store while they are at hand: while it is held a page is not dropped for room,
//! see [`PageStore`], and who gives pages back lets go first.

use super::{Page, PageId, PageStore};
use crate::error::PoolError;
use std::sync::Arc;

/// The page that was used last.
#[derive(Default)]
pub(crate) struct AtHand(Option<(PageId, Arc<Page>)>);

impl AtHand {
    fn page(&self, id: PageId) -> Option<&Arc<Page>> {
        self.0.as_ref().filter(|(at_hand, _)| *at_hand == id).map(|(_, page)| page)
    }

    /// Whether it is that page, and dirty.
    pub(crate) fn is_dirty(&self, id: PageId) -> bool {
        self.page(id).is_some_and(|page| page.is_dirty())
    }

    /// As [`PageStore::get`].
    pub(crate) async fn get(
        &mut self,
        pages: &PageStore,
        id: PageId,
    ) -> Result<Option<Arc<Page>>, PoolError> {
        if let Some(page) = self.page(id) {
            return Ok(Some(page.clone()));
        }
        let page = pages.get(id).await?;
        self.0 = page.clone().map(|page| (id, page));
        Ok(page)
    }

    /// As [`PageStore::change`].
    pub(crate) async fn change(&mut self, pages: &PageStore, id: PageId) -> Result<Arc<Page>, PoolError> {
        if let Some(page) = self.page(id).filter(|page| page.is_dirty()) {
            return Ok(page.clone());
        }
        let page = pages.change(id).await?;
        self.0 = Some((id, page.clone()));
        Ok(page)
    }
}
