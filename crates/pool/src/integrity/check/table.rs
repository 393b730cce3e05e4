//! What the block table counts, against the references that were found and what was dropped; and the content of blocks.

use super::{Leaked, Walk, block_bytes};
use crate::{
    format::{BLOCKS_PER_PAGE, BlockInfo, Location},
    maps::{
        blocks::{BlockPlace, block_word, blocks_of, table_page},
        dropped::is_among,
    },
    segment::packed::content_of,
};
use futures_util::{StreamExt, stream};
use quoin_base::{BlockNumber, PageNumber, crc32c};

/// Blocks read at the same time.
const PARALLEL: usize = 64;

impl Walk<'_> {
    /// Every entry: references as counted, content as its checksum says.
    pub(super) async fn block_table(&mut self) {
        let end = BlockNumber(self.opened.root.blocks_end.get());
        let (mut free, mut found) = (0u64, Some(0u64));
        let pages_end = PageNumber(end.0.div_ceil(BLOCKS_PER_PAGE));
        for page_number in PageNumber(0).until(pages_end) {
            let page = match self.opened.pages.get(table_page(page_number)).await {
                Ok(page) => page,
                // Reported with the page map, and so is what tells what was dropped.
                Err(_) => {
                    found = None;
                    continue;
                }
            };
            let dropped = self.opened.pages.dropped_of(page_number).await.ok();
            found = found.zip(dropped).map(|(found, dropped)| found + u64::from(dropped.count_ones()));
            let dropped = dropped.unwrap_or(0);
            let mut used = Vec::new();
            let numbers = BlockNumber(1)..end;
            for number in blocks_of(page_number).filter(|number| numbers.contains(number)) {
                let was_dropped = is_among(dropped, number);
                let references = self.references.remove(&number).unwrap_or(0) + u32::from(was_dropped);
                let at = block_word(number);
                let (location, info) = match &page {
                    Some(page) => (Location(page.get(at + 2)), BlockInfo(page.get(at + 3))),
                    None => (Location(0), BlockInfo(0)),
                };
                if references == 0 && info.count() > 0 {
                    self.unreached.insert(number);
                }
                self.unreachable_references += u64::from(info.count().saturating_sub(references));
                self.report.expect(
                    format!("block {number}"),
                    || format!("it is counted to have {} references and has {references}", info.count()),
                    info.count().into(),
                    references.into(),
                );
                if info.count() > 0 && references == info.count() && !was_dropped {
                    let problem = self.loans.note(number, info, &self.opened.catalog);
                    problem
                        .into_iter()
                        .for_each(|why| self.report.add_unless_leaked(format!("block {number}"), why));
                }
                match info.count() {
                    0 => free += 1,
                    // Its content is of no use any more, and takes space still.
                    _ if was_dropped && location.is_none() => {}
                    _ if was_dropped => self.take(location),
                    _ => used.push((number, BlockPlace { location, info })),
                }
            }
            self.blocks(used).await;
        }
        self.compare_counts(free, found);
    }

    /// What the root counts against what is in the table: free entries and, unless some cannot be read, dropped numbers.
    /// References that are left over lead beyond the table's end.
    fn compare_counts(&mut self, free: u64, found: Option<u64>) {
        for (number, references) in std::mem::take(&mut self.references) {
            self.report.add(
                format!("block {number}"),
                format!("{references} references lead to it, beyond the table's end"),
            );
        }
        let counted = self.opened.root.dropped_blocks.get();
        if let Some(found) = found.filter(|found| *found != counted) {
            self.report.add("the dropped numbers", format!("{counted} are recorded and {found} are found"));
        }
        let counted = self.opened.root.blocks_free.get();
        if free != counted {
            self.report.add(
                "the block table",
                format!("it is recorded to have {counted} free entries and has {free}"),
            );
        }
    }

    /// What is known to be leaked explains every reference that nothing leads to, and no other.
    pub(super) fn leaks(&mut self) {
        let Leaked { pages, blocks_at_most, references } = self.report.leaked;
        if pages == 0 {
            return;
        }
        let explained = references + self.report.missing_references;
        let found = self.unreachable_references;
        if found != explained {
            let problem = format!(
                "{found} references to blocks lead nowhere, and damaged pages of thin maps explain {explained}"
            );
            self.report.add("the block table", problem);
        }
        self.report.note(
            "the thin maps".into(),
            format!(
                "{pages} damaged pages were given up; they led to at most {blocks_at_most} blocks, of which {found} \
                 references stay taken for good"
            ),
        );
    }

    /// The content of blocks, many at a time.
    async fn blocks(&mut self, used: Vec<(BlockNumber, BlockPlace)>) {
        let (lost, stored): (Vec<_>, Vec<_>) = used.into_iter().partition(|(_, p)| p.info.is_lost());
        for (number, _) in lost {
            self.tell_block(number, "its content was lost to a drive; overwrite or unmap it".into());
        }
        let (opened, block_bytes) = (self.opened, block_bytes(self.opened));
        let reads: Vec<_> = stored.iter().map(|(_, place)| opened.io.read(place.location)).collect();
        let mut reads = stream::iter(reads).buffered(PARALLEL).enumerate();
        while let Some((i, read)) = reads.next().await {
            let (number, place) = stored[i];
            let what = format!("block {number}");
            let (segment, offset) = (place.location.segment(), place.location.offset_bytes());
            self.take(place.location);
            self.report.blocks += 1;
            match read {
                Ok(data) if place.info.verifies(&data) => {
                    if content_of(place.info, data, block_bytes, false).is_none() {
                        self.tell_block(number, "what is stored of it is sound and does not unpack".into());
                    }
                }
                _ if self.is_elsewhere(place).await => self.report.add_repairable(
                    what,
                    &format!(
                        "its content in segment {segment} at {offset} does not verify and follows from other drives"
                    ),
                ),
                Ok(_) => self.tell_block(
                    number,
                    format!("its content in segment {segment} at {offset} does not verify"),
                ),
                Err(error) => self.report.add_error(&what, error),
            }
        }
    }

    /// Whether the content of a block follows from other columns than its own.
    async fn is_elsewhere(&self, place: BlockPlace) -> bool {
        let io = &self.opened.io;
        let Some(set) = io.segments.stripes(place.location.segment()) else { return false };
        let verifies = |bytes: &[u8]| crc32c(bytes).0 == place.info.crc();
        io.read_otherwise(&set, place.location.range(), &verifies).await.is_some()
    }

    /// Tells of a block whose content is not there, which matters to those that reach it.
    fn tell_block(&mut self, number: BlockNumber, problem: String) {
        let what = format!("block {number}");
        if self.unreached.contains(&number) {
            self.report.add_unless_leaked(what, problem)
        } else {
            self.report.add(what, problem)
        }
    }
}
