//! Contents that look like pages of a database table: rows of numbers, words and padding, no two pages alike.

use quoin_initiator::Rng;

const PAGE_BYTES: usize = 8192;
const ROW_BYTES: usize = 128;
/// Random letters in a row: with so many LZ4 makes a third of a page.
const LETTERS: usize = 8;
/// Pages that others are made from.
const TEMPLATES: usize = 64;
const WORDS: [&str; 16] = [
    "BAR",
    "OUGHT",
    "ABLE",
    "PRI",
    "PRES",
    "ESE",
    "ANTI",
    "CALLY",
    "ATION",
    "EING",
    "north",
    "credit",
    "original",
    "street",
    "delivery",
    "wholesale",
];

/// Makes pages.
pub(crate) struct Pages {
    templates: Vec<Vec<u8>>,
    rows: u64,
}

impl Pages {
    pub(crate) fn new(rng: &mut Rng) -> Pages {
        Pages { templates: (0..TEMPLATES).map(|_| template(rng)).collect(), rows: 0 }
    }

    /// Fills transfers with pages, each row with a key of its own and a random amount.
    pub(crate) fn fill(&mut self, rng: &mut Rng, data: &mut [u8]) {
        for page in data.chunks_mut(PAGE_BYTES) {
            let template = &self.templates[rng.below(TEMPLATES as u64) as usize];
            page.copy_from_slice(&template[..page.len()]);
            for row in page.chunks_exact_mut(ROW_BYTES) {
                self.rows += 1;
                row[..8].copy_from_slice(&self.rows.to_le_bytes());
                row[24..28].copy_from_slice(&(rng.next() as u32).to_le_bytes());
            }
        }
    }
}

/// A page of rows: key, two small numbers, a date, an amount, a name of two words, and letters.
fn template(rng: &mut Rng) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE_BYTES);
    while page.len() < PAGE_BYTES {
        page.extend_from_slice(&[0; 8]);
        page.extend_from_slice(&(1 + rng.below(10) as u32).to_le_bytes());
        page.extend_from_slice(&(1 + rng.below(100) as u32).to_le_bytes());
        page.extend_from_slice(&(1_795_305_600_000 + rng.below(1 << 22)).to_le_bytes());
        page.extend_from_slice(&[0; 4]);
        let mut word = || WORDS[rng.below(WORDS.len() as u64) as usize];
        page.extend_from_slice(format!("{:<12}{:<16}", word(), word()).as_bytes());
        page.extend((0..LETTERS).map(|_| b'a' + rng.below(26) as u8));
        page.resize(page.len().next_multiple_of(ROW_BYTES), b' ');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pages_are_alike_and_they_have_as_many_patterns_as_a_table() {
        let mut rng = Rng::new(1);
        let mut pages = Pages::new(&mut rng);
        let mut data = vec![0; 40 * PAGE_BYTES];
        pages.fill(&mut rng, &mut data);
        let mut all: Vec<_> = data.chunks(PAGE_BYTES).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40);
        // Parts of pages, too.
        pages.fill(&mut rng, &mut data[..512 * 3]);
        assert!(data[..8] != data[ROW_BYTES..ROW_BYTES + 8]);
    }
}
