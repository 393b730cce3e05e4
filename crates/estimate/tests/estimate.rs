//! Estimates of files that are known, beside a plain reckoning of the same.

use quoin_base::Crc32c;
use quoin_estimate::{Dedup, Estimate, EstimateError, EstimateOptions, Progress, Range, estimate, page};
use quoin_reduction::{Codec, Compressor};
use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::Write,
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const BLOCK: usize = 8192;
const PIECE: usize = 1 << 20;

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A block of one of several kinds: zeroes, rows of a table, random bytes, or one of a few that come again and again.
fn block(numbers: &mut Numbers) -> Vec<u8> {
    let rows = |seed: u64| {
        let row = |at: u64| {
            format!("{:012}|{:08x}|customer {}|        \n", seed + at, seed.wrapping_mul(at + 7), at % 50)
        };
        let mut rows: Vec<u8> = (0..200).flat_map(|at| row(at).into_bytes()).collect();
        rows.resize(BLOCK, 0);
        rows
    };
    match numbers.next() % 8 {
        0 => vec![0; BLOCK],
        1 | 2 => rows(numbers.next() % 5),
        3 => (0..BLOCK / 8).flat_map(|_| numbers.next().to_le_bytes()).collect(),
        _ => rows(numbers.next() % (1 << 40)),
    }
}

fn write_blocks(path: &Path, seed: u64, blocks: usize) -> Vec<Vec<u8>> {
    let mut numbers = Numbers(seed * 7919 + 1);
    let blocks: Vec<_> = (0..blocks).map(|_| block(&mut numbers)).collect();
    fs::write(path, blocks.concat()).unwrap();
    blocks
}

fn options() -> EstimateOptions {
    EstimateOptions {
        block_bytes: vec![BLOCK as u32],
        codecs: vec![Codec::Lz4, Codec::Zstd(1)],
        threads: 3,
        ..EstimateOptions::default()
    }
}

fn of(paths: &[PathBuf], options: &EstimateOptions) -> Estimate {
    estimate(paths, options, &Progress::default()).unwrap()
}

/// What blocks take, reckoned one after the other: mapped, unique and stored bytes, without deduplication and with it.
fn reckoned<'a>(blocks: impl Iterator<Item = &'a Vec<u8>>, codec: Codec) -> [u64; 4] {
    let (mut seen, mut compressor, mut out) = (HashMap::new(), Compressor::new(), Vec::new());
    let [mut mapped, mut all_stored] = [0, 0];
    for block in blocks.filter(|block| block.iter().any(|byte| *byte != 0)) {
        let stored = *seen.entry(block).or_insert_with(|| {
            let is_shorter = compressor.pack(codec, block, Crc32c::default(), &mut out);
            (if is_shorter { out.len() } else { block.len() }) as u64
        });
        (mapped, all_stored) = (mapped + block.len() as u64, all_stored + stored);
    }
    [mapped, all_stored, (seen.len() * BLOCK) as u64, seen.values().sum()]
}

#[test]
fn what_is_read_whole_is_exact() {
    let dir = TempDir::new().unwrap();
    let paths = ["one", "two"].map(|name| dir.path().join(name));
    let one = write_blocks(&paths[0], 1, 700);
    let mut two = write_blocks(&paths[1], 2, 300);
    // Half of the first set is in the second, too.
    two.extend_from_slice(&one[..350]);
    fs::write(&paths[1], two.concat()).unwrap();
    let estimate = of(&paths, &options());
    assert!(estimate.is_exact());
    assert_eq!(estimate.all.logical_bytes, ((one.len() + two.len()) * BLOCK) as u64);
    assert_eq!(estimate.all.read_bytes + estimate.all.hole_bytes, estimate.all.logical_bytes);
    for codec in [Codec::Lz4, Codec::Zstd(1)] {
        let of_all = reckoned(one.iter().chain(&two), codec);
        let each = [reckoned(one.iter(), codec), reckoned(two.iter(), codec)];
        let get = |scope: &quoin_estimate::Scope, dedup| {
            let option = scope.option(BLOCK as u32, &codec.to_string(), dedup).unwrap();
            [option.mapped_bytes.estimate, option.unique_bytes.estimate, option.stored_bytes.estimate]
        };
        let all = &estimate.all;
        assert_eq!(get(all, Dedup::Off), [of_all[0], of_all[0], of_all[1]], "{codec}");
        assert_eq!(get(all, Dedup::Across), [of_all[0], of_all[2], of_all[3]], "{codec}");
        let within = [of_all[0], each[0][2] + each[1][2], each[0][3] + each[1][3]];
        assert_eq!(get(all, Dedup::Within), within, "{codec}");
        for (set, reckoned) in estimate.sets.iter().zip(each) {
            assert_eq!(get(set, Dedup::Within), [reckoned[0], reckoned[2], reckoned[3]], "{codec}");
            assert!(set.option(BLOCK as u32, "lz4", Dedup::Across).is_none(), "one set has no others");
        }
        assert!(of_all[2] < each[0][2] + each[1][2] && of_all[3] < of_all[2] && each[0][2] < each[0][0]);
    }
    // RAID-6 stores half as much again, metadata included.
    let option = estimate.all.option(BLOCK as u32, "lz4", Dedup::Across).unwrap();
    let raw = |name: &str| option.layouts.iter().find(|laid| laid.layout == name).unwrap().raw_bytes;
    let net = option.stored_bytes.estimate + option.metadata_bytes;
    assert_eq!(raw("none"), net);
    assert_eq!(raw("mirror"), 2 * net);
    assert!(raw("raid6").abs_diff(net * 3 / 2) < 8);
}

#[test]
fn all_block_sizes_are_of_the_same_data() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("small");
    // Ends in the middle of a page.
    fs::write(&path, [vec![7; 3 * PIECE / 2], b"end".repeat(1000)].concat()).unwrap();
    let estimate = of(&[path], &EstimateOptions::default());
    let sizes = estimate.all.block_sizes();
    assert_eq!(sizes, [4096, 8192, 16384, 32768]);
    let logical = (3 * PIECE / 2 + 4096) as u64;
    assert_eq!(estimate.all.logical_bytes, logical);
    for option in &estimate.all.options {
        assert_eq!(option.mapped_bytes.estimate, logical, "{}", option.block_bytes);
    }
    let stored = |bytes, dedup| estimate.all.option(bytes, "lz4", dedup).unwrap().stored_bytes.estimate;
    assert!(stored(32768, Dedup::Off) < stored(4096, Dedup::Off), "larger blocks compress better");
}

#[test]
fn holes_are_zeroes_and_are_not_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(256 * PIECE as u64).unwrap();
    let mut numbers = Numbers(3);
    let data: Vec<u8> = (0..BLOCK / 8).flat_map(|_| numbers.next().to_le_bytes()).collect();
    for at in [5, 100, 255] {
        file.write_all_at(&data, (at * PIECE + 3 * BLOCK) as u64).unwrap();
    }
    file.sync_all().unwrap();
    let estimate = of(&[path], &options());
    let all = &estimate.all;
    assert_eq!(all.logical_bytes, 256 * PIECE as u64);
    assert!(all.read_bytes <= 3 * PIECE as u64, "{}", all.read_bytes);
    assert_eq!(all.read_bytes + all.hole_bytes, all.logical_bytes);
    let option = all.option(BLOCK as u32, "lz4", Dedup::Within).unwrap();
    assert_eq!(
        (option.mapped_bytes.estimate, option.unique_bytes.estimate),
        (3 * BLOCK as u64, BLOCK as u64)
    );
}

#[test]
fn samples_say_how_far_they_may_be_off() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("data");
    write_blocks(&path, 4, 64 * PIECE / BLOCK);
    let paths = [path];
    let exact = of(&paths, &options());
    assert!(exact.is_exact());
    // Of all that is read, few contents are kept; or little is read.
    let few = EstimateOptions { most_kept: 500, ..options() };
    let little = EstimateOptions { sample: 0.25, ..options() };
    for (name, options) in [("few", few), ("little", little)] {
        let estimate = of(&paths, &options);
        assert!(!estimate.is_exact(), "{name}");
        let (mut held, mut all) = (0, 0);
        for (guess, truth) in estimate.all.options.iter().zip(&exact.all.options) {
            let ranges = [
                (guess.mapped_bytes, truth.mapped_bytes.estimate),
                (guess.unique_bytes, truth.unique_bytes.estimate),
                (guess.stored_bytes, truth.stored_bytes.estimate),
            ];
            for (range, truth) in ranges {
                assert!(range.least <= range.estimate && range.estimate <= range.most, "{name}: {range:?}");
                // Three standard errors, for all of one sample is off by as much.
                let least = range.least.saturating_sub((range.estimate - range.least) / 2);
                let most = range.most + (range.most - range.estimate) / 2;
                all += 1;
                held += usize::from((least..=most).contains(&truth));
            }
        }
        assert!(held == all, "{name}: {held} of {all}: {estimate:#?}, {exact:#?}");
    }
    let read = of(&paths, &EstimateOptions { sample: 0.25, ..options() }).all.read_bytes;
    let share = read as f64 / exact.all.read_bytes as f64;
    assert!((0.1..0.45).contains(&share), "{share}");
}

/// Files in which each block comes twice in a row, are half zeroes, or are in sets of one piece each.
#[test]
fn samples_hold_what_is_true_of_data_that_is_not_mixed_well() {
    let dir = TempDir::new().unwrap();
    let at = |name: String| dir.path().join(name);
    let mut numbers = Numbers(11);
    let mut random = |blocks: usize| -> Vec<Vec<u8>> {
        (0..blocks).map(|_| (0..BLOCK / 8).flat_map(|_| numbers.next().to_le_bytes()).collect()).collect()
    };
    let pairs = at("pairs".to_owned());
    let blocks: Vec<_> =
        random(16 * PIECE / BLOCK).into_iter().flat_map(|block| [block.clone(), block]).collect();
    fs::write(&pairs, blocks.concat()).unwrap();
    let half = at("half".to_owned());
    fs::write(&half, [random(PIECE / BLOCK).concat(), vec![0; 31 * PIECE]].concat()).unwrap();
    let sets: Vec<_> = (0..20).map(|set| at(format!("set{set}"))).collect();
    sets.iter().for_each(|path| fs::write(path, random(PIECE / BLOCK).concat()).unwrap());
    let few = vec![at("few".to_owned())];
    fs::write(&few[0], random(8).concat()).unwrap();
    for (name, paths) in [("pairs", vec![pairs]), ("half", vec![half]), ("sets", sets), ("few", few)] {
        let exact = of(&paths, &options());
        let sampled = of(&paths, &EstimateOptions { sample: 0.1, ..options() });
        for (guess, truth) in sampled.all.options.iter().zip(&exact.all.options) {
            let told = format!("{name}, {:?} {}: {guess:?}, {truth:?}", guess.dedup, guess.compression);
            let holds =
                |range: Range, truth: Range| range.least <= truth.estimate && truth.estimate <= range.most;
            assert!(holds(guess.mapped_bytes, truth.mapped_bytes), "{told}");
            assert!(holds(guess.stored_bytes, truth.stored_bytes), "{told}");
            assert!(guess.dedup_ratio >= 1.0, "{told}");
            // Nobody buys too few drives.
            assert!(guess.layouts[0].raw_bytes >= truth.layouts[0].raw_bytes / 100 * 99, "{told}");
        }
    }
}

#[test]
fn files_that_get_shorter_end_where_they_end() {
    let dir = TempDir::new().unwrap();
    let paths: Vec<_> = (0..2).map(|at| dir.path().join(format!("file{at}"))).collect();
    paths.iter().for_each(|path| drop(write_blocks(path, 12, 20 * PIECE / BLOCK)));
    let progress = Progress::default();
    let estimate = std::thread::scope(|scope| {
        let estimating =
            scope.spawn(|| estimate(&paths, &EstimateOptions { threads: 1, ..options() }, &progress));
        // As soon as their lengths are known.
        while progress.all_bytes() == 0 && !estimating.is_finished() {
            std::hint::spin_loop();
        }
        File::options().write(true).open(&paths[1]).unwrap().set_len(3 * PIECE as u64 + 100).unwrap();
        estimating.join().unwrap().unwrap()
    });
    let logical = estimate.sets[1].logical_bytes;
    // It was cut before it was read, as a rule.
    assert!(logical >= 3 * PIECE as u64 + 4096, "{logical}");
    assert_eq!(estimate.all.read_bytes + estimate.all.hole_bytes, estimate.all.logical_bytes);
    if logical == 3 * PIECE as u64 + 4096 {
        assert!(estimate.sets[1].hole_bytes == 0, "what was cut off is no hole");
    }
}

#[test]
fn each_file_counts_once_and_nothing_else_is_entered() {
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("below")).unwrap();
    write_blocks(&at("below/data"), 5, 20);
    write_blocks(&other.path().join("elsewhere"), 6, 500);
    fs::hard_link(at("below/data"), at("again")).unwrap();
    symlink(other.path(), at("link")).unwrap();
    symlink(other.path().join("elsewhere"), at("link to a file")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
    File::create(at("empty")).unwrap().write_all(b"").unwrap();
    let estimate = of(&[dir.path().to_owned(), at("below/data")], &options());
    assert_eq!((estimate.all.files, estimate.all.logical_bytes), (1, 20 * BLOCK as u64));
    let skipped: HashSet<_> = estimate.skipped.iter().map(|one| one.why.as_str()).collect();
    let whys =
        ["it is the same file as one before", "a link is not followed; name what it leads to as a PATH"];
    assert_eq!(skipped, HashSet::from(whys), "{:?}", estimate.skipped);
    assert_eq!((estimate.failed, estimate.is_exact()), (0, true));
    // What is named is followed.
    assert_eq!(of(&[at("link")], &options()).all.logical_bytes, 500 * BLOCK as u64);
}

#[test]
fn what_cannot_be_estimated_says_why() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
    fs::create_dir(at("empty")).unwrap();
    let failed = |path: PathBuf| estimate(&[path], &options(), &Progress::default()).unwrap_err();
    assert!(matches!(failed(at("missing")), EstimateError::Unreadable { .. }));
    assert!(failed(at("pipe")).to_string().ends_with("it is a pipe"));
    assert!(failed("/dev/null".into()).to_string().ends_with("it is a character device"));
    assert!(matches!(failed(at("empty")), EstimateError::Nothing(_)));
    write_blocks(&at("data"), 7, 20);
    let progress = Progress::default();
    progress.cancel();
    assert!(matches!(estimate(&[at("data")], &options(), &progress), Err(EstimateError::Cancelled)));
}

#[test]
fn the_page_has_charts_and_no_foreign_markup() {
    let dir = TempDir::new().unwrap();
    let paths = ["<b>one", "two\u{1b}[31m"].map(|name| dir.path().join(name));
    paths.iter().enumerate().for_each(|(seed, path)| drop(write_blocks(path, 8 + seed as u64, 50)));
    let estimate = of(&paths, &options());
    let page = page(&estimate, BLOCK as u32);
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(!page.contains("no chart"), "{page}");
    assert!(page.contains("&lt;b&gt;one") && !page.contains("<b>one"));
    for word in ["across sets", "raid6", "zstd-1", "All was read"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(page.contains("two\\u{1b}[31m"), "no control characters");
    let json = serde_json::to_value(&estimate).unwrap();
    assert_eq!(json["all"]["options"][0]["compression"], "off");
    assert_eq!(json["sets"].as_array().unwrap().len(), 2);
}
