//! Reading what there is, a piece at a time, on several threads.

use crate::{
    EstimateError, EstimateOptions, Progress,
    extents::next_data,
    find::{AllSkipped, Found, Source, find, open},
    report::{Estimate, Looked, report},
    seen::{Contents, Noted, Sums},
};
use parking_lot::Mutex;
use quoin_base::Crc32c;
use quoin_reduction::{Compressor, Fingerprint, FingerprintKey, is_zero};
use rustix::fs::{Advice, fadvise};
use std::{
    fs::{File, Metadata},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
    thread,
    time::Instant,
};

/// What is read at once, and what a sample is made of.
const PIECE_BYTES: u64 = 1 << 20;
/// The largest block: pieces begin at a multiple of it.
const ALIGN_BYTES: u64 = EstimateOptions::MOST_BLOCK_BYTES as u64;
/// What a file system allocates: the last block of a file is filled up to this with zeroes.
const PAGE_BYTES: u64 = 4096;

/// Blocks of one size.
#[derive(Debug)]
pub(crate) struct OfSize {
    pub block_bytes: u32,
    pub contents: Contents,
    pub sets: Vec<OfSet>,
}

/// Blocks of one size of a set.
#[derive(Clone, Debug)]
pub(crate) struct OfSet {
    /// By codec: of a sample of all blocks that are not zero.
    pub plain: Vec<Sums>,
    /// Of what was read, what is not all zeroes.
    pub mapped: Sums,
    /// Bytes and blocks of that.
    pub mapped_bytes: u64,
    pub mapped_blocks: u64,
}

/// Bytes of a set.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Bytes {
    pub files: u64,
    /// Of all files, filled up to whole pages.
    pub logical: u64,
    /// Of holes.
    pub holes: u64,
    /// That were read. The rest was left out of the sample.
    pub read: u64,
}

/// Estimates what the data below each path would take. Each path is a set.
///
/// # Errors
/// If a path cannot be read at all, or there is nothing below any. What cannot be read below a path is left out, and named.
pub fn estimate(
    paths: &[PathBuf],
    options: &EstimateOptions,
    progress: &Progress,
) -> Result<Estimate, EstimateError> {
    let began = Instant::now();
    let Found { sources, skipped, .. } = find(paths)?;
    let all: u64 = sources.iter().map(|source| source.len_bytes.next_multiple_of(PAGE_BYTES)).sum();
    progress.begin(all);
    let sets = paths.len();
    let data = sources.iter().map(|source| source.most_data_bytes).sum();
    let walk = Walk::new(sources, skipped, options.sample, sets);
    let key = FingerprintKey::new(*b"what is estimated is not stored.");
    let plain = vec![Sums::default(); options.codecs.len()];
    let of_set = OfSet { plain, mapped: Sums::default(), mapped_bytes: 0, mapped_blocks: 0 };
    let sizes = options.block_bytes.iter().map(|block_bytes| {
        let contents = Contents::new(options.most_kept);
        Mutex::new(OfSize { block_bytes: *block_bytes, contents, sets: vec![of_set.clone(); sets] })
    });
    let shared = Shared { walk: Mutex::new(walk), sizes: sizes.collect(), key, options, progress, data };
    thread::scope(|scope| {
        let threads = (0..options.threads.max(1)).map(|number| {
            let name = format!("estimate-{number}");
            thread::Builder::new().name(name).spawn_scoped(scope, || shared.work())
        });
        threads.collect::<Result<Vec<_>, _>>().map(drop).inspect_err(|_| progress.cancel())
    })
    .map_err(EstimateError::Thread)?;
    if progress.is_cancelled() {
        return Err(EstimateError::Cancelled);
    }
    let Walk { bytes, skipped, .. } = shared.walk.into_inner();
    let sizes = shared.sizes.into_iter().map(Mutex::into_inner).collect();
    Ok(report(paths, options, Looked { sizes, bytes, skipped, seconds: began.elapsed().as_secs_f64() }))
}

/// A piece of a file to be read.
struct Piece {
    number: u32,
    file: Arc<File>,
    source: usize,
    set: usize,
    range: Range<u64>,
}

/// Goes through all files, and gives out pieces of them.
struct Walk {
    sources: Vec<Source>,
    skipped: AllSkipped,
    sample: f64,
    bytes: Vec<Bytes>,
    /// By set: whether a piece of it is in the sample.
    is_sampled: Vec<bool>,
    next: usize,
    open: Option<(Arc<File>, usize)>,
    /// Where in the open file it is.
    at: u64,
    /// Pieces that had data, so far.
    pieces: u64,
}

impl Walk {
    fn new(sources: Vec<Source>, skipped: AllSkipped, sample: f64, sets: usize) -> Self {
        let (bytes, is_sampled) = (vec![Bytes::default(); sets], vec![false; sets]);
        Self { sources, skipped, sample, bytes, is_sampled, next: 0, open: None, at: 0, pieces: 0 }
    }

    /// The next piece to be read.
    fn next(&mut self, progress: &Progress) -> Option<Piece> {
        loop {
            let (file, number) = match &self.open {
                Some((file, number)) => (file.clone(), *number),
                None => self.open_next(progress)?,
            };
            let Source { set, len_bytes, .. } = self.sources[number];
            // A file that got shorter ends where it ends. One that grew is read as far as it was known to.
            let is_file = |metadata: &Metadata| metadata.file_type().is_file();
            let now = file.metadata().ok().filter(is_file).map_or(len_bytes, |metadata| metadata.len());
            let len_bytes = len_bytes.min(now.max(self.at));
            let end = len_bytes.next_multiple_of(PAGE_BYTES);
            let data = next_data(&file, self.at, len_bytes);
            // Whole blocks of all sizes.
            let begin = data.as_ref().map_or(end, |data| self.at.max(data.start / ALIGN_BYTES * ALIGN_BYTES));
            let (hole, bytes) = (begin.saturating_sub(self.at), &mut self.bytes[set]);
            bytes.holes += hole;
            bytes.logical += hole;
            progress.did(hole);
            let Some(data) = data else {
                self.open = None;
                continue;
            };
            let piece_end = (begin + 1).next_multiple_of(PIECE_BYTES);
            let range = begin..piece_end.min(data.end.next_multiple_of(ALIGN_BYTES)).min(end);
            self.at = range.end;
            self.pieces += 1;
            // NOTE: the first piece of each set is in its sample, so that none is empty.
            let is_first = !std::mem::replace(&mut self.is_sampled[set], true);
            if !is_first && unit(self.pieces, 0) >= self.sample {
                bytes.logical += range.end - range.start;
                progress.did(range.end - range.start);
                continue;
            }
            return Some(Piece { number: self.pieces as u32, file, source: number, set, range });
        }
    }

    /// Opens the next file that can be opened.
    fn open_next(&mut self, progress: &Progress) -> Option<(Arc<File>, usize)> {
        loop {
            let number = self.next;
            let source = self.sources.get(number)?;
            self.next += 1;
            match open(&source.path) {
                Ok(file) => {
                    // What is read here is not worth the place of what others read.
                    let _ = fadvise(&file, 0, None, Advice::NoReuse);
                    self.bytes[source.set].files += 1;
                    let file = Arc::new(file);
                    self.at = 0;
                    self.open = Some((file.clone(), number));
                    return Some((file, number));
                }
                Err(error) => {
                    progress.did(source.len_bytes.next_multiple_of(PAGE_BYTES));
                    self.skipped.fail(&source.path, error);
                }
            }
        }
    }

    fn failed(&mut self, piece: &Piece, error: &io::Error) {
        let why = format!("bytes {} to {}: {error}", piece.range.start, piece.range.end - 1);
        self.skipped.fail(&self.sources[piece.source].path, why);
    }
}

/// A number from 0 to 1 for a thing that is numbered: the same each time, and any as likely as any other.
fn unit(number: u64, of: u64) -> f64 {
    // SplitMix64.
    let mut z = number.wrapping_add(of.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as f64 / 2f64.powi(64)
}

/// What threads share.
struct Shared<'a> {
    walk: Mutex<Walk>,
    sizes: Vec<Mutex<OfSize>>,
    key: FingerprintKey,
    options: &'a EstimateOptions,
    progress: &'a Progress,
    /// About the most that is in no hole.
    data: u64,
}

/// A block of a piece.
struct Block {
    range: Range<usize>,
    fingerprint: Fingerprint,
    is_new: bool,
    /// It is in the sample of places.
    is_sampled: bool,
    /// What it takes with each codec, if it is wanted.
    stored: Vec<u32>,
}

impl Shared<'_> {
    fn work(&self) {
        let (mut buf, mut compressor) = (vec![0; PIECE_BYTES as usize], Compressor::new());
        while !self.progress.is_cancelled() {
            let Some(piece) = self.walk.lock().next(self.progress) else { return };
            let len = piece.range.end - piece.range.start;
            let data = &mut buf[..len as usize];
            match read(&piece.file, data, piece.range.start) {
                Ok(read) => {
                    // A file that got shorter ends where it ends.
                    let data = &mut data[..(read as u64).next_multiple_of(PAGE_BYTES) as usize];
                    data[read..].fill(0);
                    self.look_at(&piece, data, &mut compressor);
                    let bytes = &mut self.walk.lock().bytes[piece.set];
                    bytes.logical += data.len() as u64;
                    bytes.read += data.len() as u64;
                }
                Err(error) => self.walk.lock().failed(&piece, &error),
            }
            self.progress.did(len);
        }
    }

    /// Looks at a piece, in blocks of each size.
    fn look_at(&self, piece: &Piece, data: &[u8], compressor: &mut Compressor) {
        for (of_size, block_bytes) in self.sizes.iter().zip(&self.options.block_bytes) {
            let mut blocks = self.blocks(piece, data, *block_bytes);
            self.note(of_size, piece, data.len(), &mut blocks);
            for block in blocks.iter_mut().filter(|block| block.is_new || block.is_sampled) {
                if block.stored.is_empty() {
                    block.stored = self.compressed(&data[block.range.clone()], compressor);
                }
            }
            self.note_stored(of_size, piece.set, &blocks);
        }
    }

    /// The blocks of a piece that are not all zeroes.
    fn blocks(&self, piece: &Piece, data: &[u8], block_bytes: u32) -> Vec<Block> {
        let most = self.options.most_kept as f64 * f64::from(block_bytes);
        let sampled = most / (self.data as f64 * self.options.sample);
        let starts = (0..data.len()).step_by(block_bytes as usize);
        let ranges = starts.map(|start| start..data.len().min(start + block_bytes as usize));
        let mapped = ranges.filter(|range| !is_zero(&data[range.clone()]));
        let block = |range: Range<usize>| {
            let place = (piece.range.start + range.start as u64) / PAGE_BYTES;
            Block {
                fingerprint: self.key.fingerprint(&data[range.clone()]),
                is_new: false,
                is_sampled: unit(place, piece.source as u64 + 1) < sampled,
                stored: Vec::new(),
                range,
            }
        };
        mapped.map(block).collect()
    }

    fn note(&self, of_size: &Mutex<OfSize>, piece: &Piece, len_bytes: usize, blocks: &mut [Block]) {
        let mut of_size = of_size.lock();
        let of_set = &mut of_size.sets[piece.set];
        let mapped = blocks.iter().map(|block| block.range.len() as u64).sum();
        of_set.mapped.add(len_bytes as u64, mapped);
        of_set.mapped_bytes += mapped;
        of_set.mapped_blocks += blocks.len() as u64;
        for block in blocks {
            let place = (piece.set, piece.number);
            block.is_new = of_size.contents.note(block.fingerprint, place, block.range.len()) == Noted::New;
            if block.is_sampled
                && let Some(stored) = of_size.contents.stored(block.fingerprint)
            {
                block.stored = stored.to_vec();
            }
        }
    }

    fn note_stored(&self, of_size: &Mutex<OfSize>, set: usize, blocks: &[Block]) {
        let mut of_size = of_size.lock();
        for block in blocks.iter().filter(|block| block.is_new) {
            of_size.contents.note_stored(block.fingerprint, &block.stored);
        }
        let sampled = || blocks.iter().filter(|block| block.is_sampled);
        let len = sampled().map(|block| block.range.len() as u64).sum();
        if len > 0 {
            for (codec, sums) in of_size.sets[set].plain.iter_mut().enumerate() {
                sums.add(len, sampled().map(|block| u64::from(block.stored[codec])).sum());
            }
        }
    }

    /// What a block takes with each codec.
    fn compressed(&self, block: &[u8], compressor: &mut Compressor) -> Vec<u32> {
        let mut out = Vec::new();
        let stored = |codec: &_| {
            let is_shorter = compressor.pack(*codec, block, Crc32c::default(), &mut out);
            (if is_shorter { out.len() } else { block.len() }) as u32
        };
        self.options.codecs.iter().map(stored).collect()
    }
}

/// Reads until `data` is full or the file ends. Returns how many bytes there were.
fn read(file: &File, data: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < data.len() {
        match file.read_at(&mut data[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
