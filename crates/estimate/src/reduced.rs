//! What is left of data with a block size, a codec and deduplication.

use crate::{scan::Bytes, scan::OfSize};
use quoin_base::Layout;
use serde::Serialize;

/// A block's entry in a thin map. The array keeps one for each block that is not all zeroes.
const MAP_ENTRY_BYTES: u64 = 8;
/// A block's entry in the block table and its name in the head of a row. The array keeps one for each block that it stores.
const BLOCK_ENTRY_BYTES: u64 = 32 + 16;

/// Which equal blocks are stored once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dedup {
    /// None.
    Off,
    /// Those of the same set.
    Within,
    /// Those of all sets.
    Across,
}

/// A figure, and how far it may be off. All three are the same if it is exact.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Range {
    /// The estimate.
    pub estimate: u64,
    /// It is hardly less.
    pub least: u64,
    /// It is hardly more.
    pub most: u64,
}

impl Range {
    fn exactly(value: u64) -> Self {
        Self { estimate: value, least: value, most: value }
    }

    /// So far off at most, both ways.
    fn about(value: f64, margin: f64) -> Self {
        let round = |value: f64| value.max(0.0).round() as u64;
        Self { estimate: round(value), least: round(value - margin), most: round(value + margin) }
    }

    /// Whether all three are the same.
    pub fn is_exact(self) -> bool {
        self.least == self.estimate && self.estimate == self.most
    }
}

/// What a layout of drives needs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Laid {
    /// Its name.
    pub layout: String,
    /// Bytes of drives, metadata included.
    pub raw_bytes: u64,
    /// The size of the data to that: what arrays call overall efficiency.
    pub efficiency: f64,
}

/// What is left of data.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reduced {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The codec, or `off`.
    pub compression: String,
    /// Which equal blocks are stored once.
    pub dedup: Dedup,
    /// Bytes of blocks that are not all zeroes.
    pub mapped_bytes: u64,
    /// Blocks that are stored. If only a part of the data was read, what deduplication saves is estimated as the least that it
    /// may save.
    pub unique_blocks: Range,
    /// Their bytes before compression.
    pub unique_bytes: Range,
    /// Their bytes as they are stored.
    pub stored_bytes: Range,
    /// What maps and tables take beside them.
    pub metadata_bytes: u64,
    /// `mapped_bytes` to `unique_bytes`.
    pub dedup_ratio: f64,
    /// `unique_bytes` to `stored_bytes`.
    pub compression_ratio: f64,
    /// `mapped_bytes` to `stored_bytes`.
    pub reduction_ratio: f64,
    /// What layouts of drives need.
    pub layouts: Vec<Laid>,
}

/// What to reckon.
#[derive(Clone, Copy)]
pub(crate) struct Choice<'a> {
    /// Of this set alone; of all sets, if there is none.
    pub set: Option<usize>,
    /// The codec, and its place among those that were tried.
    pub codec: Option<(usize, &'a str)>,
    pub dedup: Dedup,
    pub layouts: &'a [Layout],
}

/// Sums over contents, each with a weight.
#[derive(Default)]
struct Weighed {
    blocks: f64,
    bytes: f64,
    stored: f64,
    bytes_bytes: f64,
    stored_stored: f64,
    blocks_blocks: f64,
}

impl Weighed {
    fn add(&mut self, weight: f64, bytes: u32, stored: u32) {
        let (bytes, stored) = (weight * f64::from(bytes), weight * f64::from(stored));
        self.blocks += weight;
        self.bytes += bytes;
        self.stored += stored;
        self.blocks_blocks += weight * weight;
        self.bytes_bytes += bytes * bytes;
        self.stored_stored += stored * stored;
    }
}

/// `of` to `to`; 1 of nothing.
fn ratio(of: u64, to: u64) -> f64 {
    if to == 0 { 1.0 } else { of as f64 / to as f64 }
}

impl OfSize {
    /// What is left of data, of which these bytes were looked at.
    pub(crate) fn reduced(&self, bytes: &[Bytes], choice: Choice<'_>) -> Reduced {
        let sets = choice.set.map_or(0..bytes.len(), |set| set..set + 1);
        let of_sets = |of: &dyn Fn(usize) -> f64| sets.clone().map(of).sum::<f64>();
        // What was read stands for what a sample left out, set by set.
        let mapped = of_sets(&|set| self.mapped_bytes[set] as f64 * bytes[set].scale());
        let mapped_bytes = mapped.round() as u64;
        let codec = choice.codec.map(|(at, _)| at);
        let (unique_blocks, unique_bytes, stored_bytes) = match choice.dedup {
            Dedup::Off => {
                let blocks = Range::exactly(mapped_bytes.div_ceil(self.block_bytes.into()));
                let plain = |set: usize, codec: usize| self.plain[set][codec].ratio(self.mapped(set, bytes));
                let stored = match codec {
                    None => Range::exactly(mapped_bytes),
                    Some(codec) => Range::about(
                        of_sets(&|set| self.mapped(set, bytes) * plain(set, codec).0),
                        of_sets(&|set| (self.mapped(set, bytes) * plain(set, codec).1).powi(2)).sqrt(),
                    ),
                };
                (blocks, Range::exactly(mapped_bytes), stored)
            }
            Dedup::Across => self.deduplicated(&[choice.set], bytes, codec),
            Dedup::Within => {
                let each: Vec<_> = sets.map(Some).collect();
                self.deduplicated(&each, bytes, codec)
            }
        };
        let mapped_blocks = mapped_bytes.div_ceil(self.block_bytes.into());
        let metadata_bytes = mapped_blocks * MAP_ENTRY_BYTES + unique_blocks.estimate * BLOCK_ENTRY_BYTES;
        let needed = stored_bytes.estimate + metadata_bytes;
        let logical = of_logical(bytes, choice.set);
        let laid = |layout: &Layout| {
            let raw_bytes = needed.div_ceil(layout.data().into()) * u64::from(layout.columns());
            Laid { layout: layout.to_string(), raw_bytes, efficiency: ratio(logical, raw_bytes) }
        };
        Reduced {
            block_bytes: self.block_bytes,
            compression: choice.codec.map_or("off", |(_, name)| name).to_owned(),
            dedup: choice.dedup,
            mapped_bytes,
            unique_blocks,
            unique_bytes,
            stored_bytes,
            metadata_bytes,
            dedup_ratio: ratio(mapped_bytes, unique_bytes.estimate),
            compression_ratio: ratio(unique_bytes.estimate, stored_bytes.estimate),
            reduction_ratio: ratio(mapped_bytes, stored_bytes.estimate),
            layouts: choice.layouts.iter().map(laid).collect(),
        }
    }

    /// Bytes of a set that are not zero, those left out of a sample included.
    fn mapped(&self, set: usize, bytes: &[Bytes]) -> f64 {
        self.mapped_bytes[set] as f64 * bytes[set].scale()
    }

    /// Blocks, bytes and stored bytes if each content is stored once in each of these scopes.
    fn deduplicated(
        &self,
        scopes: &[Option<usize>],
        bytes: &[Bytes],
        codec: Option<usize>,
    ) -> (Range, Range, Range) {
        let kept = self.contents.kept();
        let [mut low, mut high] = [(); 2].map(|()| Weighed::default());
        for &scope in scopes {
            let scale = scale_of(bytes, scope);
            for content in self.contents.all() {
                // A content that is once in a sample stands for itself at least: it may have copies elsewhere. At most it stands
                // for `scale` contents, that have none. What is there more often has copies everywhere, as a rule.
                let most = match content.copies_in(scope) {
                    0 => continue,
                    1 => scale,
                    _ => 1.0,
                };
                let (len, stored) = (content.len_bytes, content.stored_with(codec));
                low.add(1.0 / kept, len, stored);
                high.add(most / kept, len, stored);
            }
        }
        // Contents are in the sample by chance, one of `1 / kept`: two standard errors of a sum over them.
        let off = |squares: f64| 2.0 * (squares * (1.0 - kept)).sqrt();
        let range = |of: &dyn Fn(&Weighed) -> (f64, f64)| {
            let [(least, below), (most, above)] = [of(&low), of(&high)];
            let round = |value: f64| value.max(0.0).round() as u64;
            // Who buys drives wants to know what they will need, not what they may.
            Range { estimate: round(most), least: round(least - off(below)), most: round(most + off(above)) }
        };
        (
            range(&|sums| (sums.blocks, sums.blocks_blocks)),
            range(&|sums| (sums.bytes, sums.bytes_bytes)),
            range(&|sums| (sums.stored, sums.stored_stored)),
        )
    }
}

/// The size of a set, or of all.
pub(crate) fn of_logical(bytes: &[Bytes], set: Option<usize>) -> u64 {
    set.map_or_else(|| bytes.iter().map(|bytes| bytes.logical).sum(), |set| bytes[set].logical)
}

/// For how many bytes each that was read stands.
fn scale_of(bytes: &[Bytes], set: Option<usize>) -> f64 {
    let chosen = match set {
        Some(set) => &bytes[set..=set],
        None => bytes,
    };
    let sum = |of: fn(&Bytes) -> u64| chosen.iter().map(of).sum::<u64>();
    Bytes { files: 0, logical: sum(|b| b.logical), holes: sum(|b| b.holes), read: sum(|b| b.read) }.scale()
}

impl Bytes {
    /// For how many bytes each that was read stands.
    fn scale(&self) -> f64 {
        let with_data = self.logical - self.holes;
        if self.read == 0 { 1.0 } else { with_data as f64 / self.read as f64 }
    }
}
