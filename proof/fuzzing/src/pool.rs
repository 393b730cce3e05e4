//! A whole pool whose drive somebody changed: it is checked, opened, read, written and closed. It may refuse,
//! fail reads and report whatever it finds; it must not panic, wait for ever or take memory without bound.

use crate::{
    Target,
    image::{Atlas, BATCH_MAGIC, Kind, PAGE, atlas_of},
    input::Input,
    world::{BLOCK_BYTES, Bench, DRIVE_BYTES, base},
};
use quoin_base::{ByteRange, MIB};
use quoin_pool::Pool;
use quoin_world::Slice;
use std::sync::{Arc, OnceLock};

/// The body of a journal extent.
pub(crate) const JOURNAL: Target = Target {
    name: "pool_journal",
    about: "which extent, a byte of modes, then what is written over its batches; their checksums are mended",
    run: journal,
    seeds: journal_seeds,
    words: || vec![BATCH_MAGIC.to_vec(), vec![0xFF; 8], vec![0; 8], vec![1, 0, 0, 0], vec![0, 16, 0, 0]],
    mutations: 250,
};

/// Anything on the drive.
pub(crate) const IMAGE: Target = Target {
    name: "pool_image",
    about: "changes to labels, roots, extent headers, batches, row heads and metadata pages, checksums mended",
    run: image,
    seeds: image_seeds,
    words: || vec![vec![0xFF; 8], vec![0; 8], vec![1, 0, 0, 0, 0, 0, 0, 0], vec![0, 0, 0, 0, 1, 0, 0, 0]],
    mutations: 250,
};

fn atlas() -> &'static Atlas {
    static ATLAS: OnceLock<Atlas> = OnceLock::new();
    ATLAS.get_or_init(|| atlas_of(base()))
}

fn bench() -> Bench {
    let bench = Bench::new(DRIVE_BYTES);
    bench.disk.restore(base().drive.clone());
    bench
}

fn image(bytes: &[u8]) {
    let bench = bench();
    atlas().edit(&bench.disk, &mut Input::new(bytes));
    live(&bench, bytes.is_empty());
}

fn journal(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let extents = &atlas().extents;
    let extent = extents[usize::from(input.u8()) % extents.len()];
    let mode = input.u8();
    let bench = bench();
    for (page, bytes) in input.rest().chunks(PAGE).take(48).enumerate() {
        bench.disk.poke(extent + ((page + 1) * PAGE) as u64, bytes);
    }
    if mode & 1 == 0 {
        atlas().mend_batches(&bench.disk, extent);
    }
    live(&bench, false);
}

/// What a pool lives through. `sound`: nothing was changed, so nothing may be wrong.
fn live(bench: &Bench, sound: bool) {
    let before = bench.check();
    assert!(!sound || before.as_ref().is_ok_and(|report| report.is_clean()), "{before:?}");
    let pool = match bench.open() {
        Ok(pool) => pool,
        Err(refusal) => return assert!(!sound && refusal.len() > 10, "refused: {refusal}"),
    };
    let problems = bench.run(|_, _| use_it(pool));
    assert!(!sound || problems.is_empty(), "{problems:?}");
    let after = bench.check();
    assert!(!sound || after.as_ref().is_ok_and(|report| report.is_clean()), "{after:?}");
}

/// Reads where there is something, writes, gives back, stops. Returns what failed.
async fn use_it(pool: Arc<Pool>) -> Vec<String> {
    let mut problems = Vec::new();
    for volume in base().volumes.iter().take(2) {
        for offset in [0, 10 * BLOCK_BYTES, 4 * MIB, 3 << 30, 5 << 40] {
            for piece in ByteRange::new(offset, 10 * BLOCK_BYTES).split(4 * BLOCK_BYTES) {
                match pool.read(*volume, piece).await {
                    Ok(slices) => {
                        let len: usize = slices.iter().map(|slice| slice.len()).sum();
                        assert_eq!(len as u64, piece.len, "a read of {piece:?} returns {len} bytes");
                    }
                    Err(error) => problems.push(error.to_string()),
                }
            }
        }
        let written = vec![Slice::copy_of(&[9; 4096])];
        problems.extend(pool.write(*volume, BLOCK_BYTES, written).await.err().map(|error| error.to_string()));
        let range = ByteRange::new(4 * MIB, 2 * BLOCK_BYTES);
        problems.extend(pool.unmap(*volume, range).await.err().map(|error| error.to_string()));
    }
    problems.extend(pool.drain().await.err().map(|error| error.to_string()));
    problems.extend(pool.close().await.err().map(|error| error.to_string()));
    problems
}

/// Places of each kind that seeds change.
const SEEDED_PLACES: usize = 3;

fn image_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let atlas = atlas();
    let edit = |place: usize, offset: u16, kind: u8, value: u64| {
        [&(place as u16).to_le_bytes()[..], &offset.to_le_bytes(), &[kind], &value.to_le_bytes()].concat()
    };
    let mut seeds = vec![("nothing", Vec::new())];
    let kinds =
        [(Kind::Sealed, "sealed"), (Kind::Row, "row"), (Kind::Batch, "batch"), (Kind::Referred, "page")];
    for (kind, name) in kinds {
        let places = atlas.places.iter().enumerate().filter(|(_, (_, other))| *other == kind);
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        assert!(!places.is_empty(), "the pool has no {name}");
        let step = places.len().div_ceil(SEEDED_PLACES).max(1);
        let bytes = places.iter().step_by(step).flat_map(|place| edit(*place, 40, 0x12, 1)).collect();
        seeds.push((name, bytes));
    }
    seeds.push(("exchanged", [edit(2, 0, 0x08, 3), edit(9, 0, 0x0C, 2)].concat()));
    seeds
}

fn journal_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let bench = bench();
    let used = |(number, extent): (usize, &u64)| {
        let batches = bench.disk.peek(extent + PAGE as u64, 3 * PAGE);
        batches.starts_with(BATCH_MAGIC).then(|| [&[number as u8, 0][..], &batches].concat())
    };
    let mut seeds: Vec<_> =
        atlas().extents.iter().enumerate().filter_map(used).map(|bytes| ("batches", bytes)).collect();
    let last = seeds.pop().unwrap_or_default().1;
    // As it stands on the drive, as far as one batch, and without mending.
    vec![
        ("one", last[..last.len().min(2 + PAGE)].to_vec()),
        ("torn", [&last[..1], &[1], &last[2..]].concat()),
        ("all", last),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_structure_is_found_and_a_mended_change_is_seen_behind_its_checksum() {
        let count = |kind| atlas().places.iter().filter(|(_, other)| *other == kind).count();
        assert!(count(Kind::Sealed) >= 5, "two labels, two roots, an extent: {}", count(Kind::Sealed));
        assert!(count(Kind::Row) >= 2 && count(Kind::Batch) >= 2, "rows, batches");
        assert!(count(Kind::Referred) >= 20, "pages of four spaces: {}", count(Kind::Referred));
        assert!(!atlas().extents.is_empty());
        // The same change, once with and once without mending: other findings.
        let pages = atlas().places.iter().filter(|(_, kind)| *kind == Kind::Referred);
        let differ = pages.filter(|(at, _)| {
            let findings = [true, false].map(|mend| {
                let bench = bench();
                atlas().change(&bench.disk, *at, 8, &[0x77; 8], mend);
                format!("{:?}", bench.check().map(|report| report.problems))
            });
            findings[0] != findings[1]
        });
        assert!(differ.count() >= 10, "mending changes nothing");
    }
}
