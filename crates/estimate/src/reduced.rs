//! What is left of data with a block size, a codec and deduplication.

use crate::{
    scan::{Bytes, OfSize},
    seen::{Content, Seen},
};
use quoin_base::Layout;
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// So far off at most, both ways.
    fn about(value: f64, margin: f64) -> Self {
        let round = |value: f64| value.max(0.0).round() as u64;
        Self { estimate: round(value), least: round(value - margin), most: round(value + margin) }
    }

    /// The same, as far as it is no more than `most` is.
    fn within(self, most: Self) -> Self {
        Self {
            estimate: self.estimate.min(most.estimate),
            least: self.least.min(most.least),
            most: self.most.min(most.most),
        }
    }

    /// Whether all three are the same.
    pub fn is_exact(self) -> bool {
        self.least == self.estimate && self.estimate == self.most
    }
}

/// What a layout of drives needs. Of a figure that may be off, its upper end counts: who buys drives must know what they will need.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Laid {
    /// Its name.
    pub layout: String,
    /// Bytes on drives, metadata included.
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
    pub mapped_bytes: Range,
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

/// `of` to `to`; 1 of nothing.
fn ratio(of: u64, to: u64) -> f64 {
    if to == 0 { 1.0 } else { of as f64 / to as f64 }
}

/// What sums over contents are of.
#[derive(Clone, Copy)]
enum Of {
    Blocks,
    Bytes,
    Stored(Option<usize>),
}

impl Of {
    fn content(self, content: &Content) -> f64 {
        match self {
            Self::Blocks => 1.0,
            Self::Bytes => content.len_bytes.into(),
            Self::Stored(codec) => content.stored_with(codec).into(),
        }
    }
}

impl OfSize {
    /// What is left of data, of which these bytes were looked at.
    pub(crate) fn reduced(&self, bytes: &[Bytes], choice: Choice<'_>) -> Reduced {
        let sets: Vec<_> = choice.set.map_or(0..bytes.len(), |set| set..set + 1).collect();
        let mapped = self.plain(&sets, bytes, None);
        let codec = choice.codec.map(|(at, _)| at);
        let blocks = Range::about(sets.iter().map(|set| self.mapped_blocks(*set, bytes)).sum(), 0.0);
        let (unique_blocks, unique_bytes, stored_bytes) = match choice.dedup {
            Dedup::Off => (blocks, mapped, self.plain(&sets, bytes, codec)),
            dedup => {
                let scopes: Vec<_> = match dedup {
                    Dedup::Across => vec![choice.set],
                    Dedup::Off | Dedup::Within => sets.iter().copied().map(Some).collect(),
                };
                let of = |of| self.deduplicated(&scopes, bytes, of);
                (of(Of::Blocks), of(Of::Bytes).within(mapped), of(Of::Stored(codec)).within(mapped))
            }
        };
        let metadata_bytes = blocks.estimate * MAP_ENTRY_BYTES + unique_blocks.estimate * BLOCK_ENTRY_BYTES;
        let needed = stored_bytes.most + metadata_bytes;
        let logical = of_logical(bytes, choice.set);
        let laid = |layout: &Layout| {
            let raw_bytes = needed.div_ceil(layout.data().into()) * u64::from(layout.columns());
            Laid { layout: layout.to_string(), raw_bytes, efficiency: ratio(logical, raw_bytes) }
        };
        Reduced {
            block_bytes: self.block_bytes,
            compression: choice.codec.map_or("off", |(_, name)| name).to_owned(),
            dedup: choice.dedup,
            mapped_bytes: mapped,
            unique_blocks,
            unique_bytes,
            stored_bytes,
            metadata_bytes,
            dedup_ratio: ratio(mapped.estimate, unique_bytes.estimate),
            compression_ratio: ratio(unique_bytes.estimate, stored_bytes.estimate),
            reduction_ratio: ratio(mapped.estimate, stored_bytes.estimate),
            layouts: choice.layouts.iter().map(laid).collect(),
        }
    }

    /// What blocks of sets take that are not all zeroes, with a codec or without.
    fn plain(&self, sets: &[usize], bytes: &[Bytes], codec: Option<usize>) -> Range {
        let (mut sum, mut squares, mut most) = (0.0, 0.0, 0);
        for &set in sets {
            let (of_set, data) = (&self.sets[set], bytes[set].data() as f64);
            let (share, off) = of_set.mapped.ratio(data);
            let (mut stored, mut margin) = (share * data, off * data);
            if let Some(codec) = codec {
                let (ratio, off) = of_set.plain[codec].ratio(stored);
                margin = (margin * ratio).hypot(stored * off);
                stored *= ratio;
            }
            (sum, squares, most) = (sum + stored, squares + margin * margin, most + bytes[set].data());
        }
        let range = Range::about(sum, squares.sqrt());
        Range { most: range.most.min(most), ..range }
    }

    fn mapped_blocks(&self, set: usize, bytes: &[Bytes]) -> f64 {
        let (of_set, data) = (&self.sets[set], bytes[set].data() as f64);
        let block_bytes = match of_set.mapped_blocks {
            0 => f64::from(self.block_bytes),
            blocks => of_set.mapped_bytes as f64 / blocks as f64,
        };
        of_set.mapped.ratio(data).0 * data / block_bytes
    }

    /// What contents come to if each is stored once in each of these scopes.
    fn deduplicated(&self, scopes: &[Option<usize>], bytes: &[Bytes], of: Of) -> Range {
        let kept = self.contents.kept();
        let scales: Vec<_> = scopes.iter().map(|scope| scale_of(bytes, *scope)).collect();
        // A content that was seen in one piece stands for itself at least: it may be in others that were not read. At most it
        // stands for `scale` contents that are in one piece each. One that was seen in several is everywhere, as a rule.
        let (mut low, mut high, mut squares) = (0.0, 0.0, 0.0);
        let mut in_pieces: BTreeMap<u32, f64> = BTreeMap::new();
        for content in self.contents.all() {
            let value = of.content(content) / kept;
            let (mut at_least, mut at_most) = (0.0, 0.0);
            for (scope, scale) in scopes.iter().zip(&scales) {
                let Some(seen) = content.found_in(*scope) else { continue };
                at_least += value;
                at_most += match seen {
                    Seen::InPiece(piece) if *scale > 1.0 => {
                        *in_pieces.entry(piece).or_default() += value * (scale * scale - scale).sqrt();
                        value * scale
                    }
                    Seen::InPiece(_) | Seen::InSeveral => value,
                };
            }
            (low, high) = (low + at_least, high + at_most);
            squares += at_most * at_most * (1.0 - kept);
        }
        // Contents are in the sample by chance, and so are pieces: two standard errors of both.
        let of_pieces: f64 = in_pieces.values().map(|sum| sum * sum).sum();
        let off = 2.0 * (squares + of_pieces).sqrt();
        let round = |value: f64| value.max(0.0).round() as u64;
        Range { estimate: round(high), least: round(low - 2.0 * squares.sqrt()), most: round(high + off) }
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
    /// What is in no hole.
    fn data(&self) -> u64 {
        self.logical - self.holes
    }

    /// For how many bytes each that was read stands.
    fn scale(&self) -> f64 {
        if self.read == 0 { 1.0 } else { self.data() as f64 / self.read as f64 }
    }
}
