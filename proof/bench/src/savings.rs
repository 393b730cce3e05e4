//! What compression and deduplication save on a user's own data: images of file systems and databases, beside what the same codecs
//! could save, btrfs, and qcow2.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use comfy_table::Table;
use serde::Serialize;

use crate::load::At;
use crate::markdown::{finish, table};
use crate::process::{line, wait_until};
use crate::quoin::{Array, Serving, binary, number};
use crate::{Output, machine};
use quoin_initiator::{self as initiator, Connection, Io, Next, Rng, Shape, Source};

const BLOCK_BYTES: usize = 8192;
/// A block that does not become shorter by a sixteenth is stored as it is.
const MOST_PACKED_BYTES: usize = BLOCK_BYTES - BLOCK_BYTES / 16;
const IO_BYTES: usize = 256 << 10;
const DEPTH: usize = 8;
const MEMORY_BYTES: u64 = 1 << 30;
/// The pool is settled when what it stores has not changed for so long.
const STEADY_FOR: Duration = Duration::from_secs(12);
/// Restored copies of each database, and snapshots of each volume.
const COPIES: usize = 5;
const SNAPSHOTS: u64 = 5;
/// Before the next snapshot one of so many blocks is changed.
const CHANGED_ONE_OF: u64 = 100;
const SETTLED_LIMIT: Duration = Duration::from_secs(300);

/// On which data and drives.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Images to be written to a volume each.
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// Directory for the drive files; everything made there is removed again.
    #[arg(long, value_name = "DIR", default_value = "var/bench")]
    dir: PathBuf,
    /// Size of each of the drives.
    #[arg(long, value_parser = crate::units::parse_bytes, value_name = "SIZE", default_value = "1g")]
    drive_size: u64,
    /// Drives.
    #[arg(long, default_value_t = 6)]
    drives: usize,
    /// Layouts that the largest image is written in.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LAYOUTS",
        default_value = "none,mirror,mirror-3,raid5,raid6,4+2"
    )]
    layouts: Vec<String>,
    /// Leave out btrfs and qcow2: they need root, btrfs-progs and qemu-utils.
    #[arg(long)]
    alone: bool,
    /// The `quoin` program; the one beside this program by default.
    #[arg(long, value_name = "PATH")]
    quoin: Option<PathBuf>,
    /// Table for people or JSON for programs.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// What became of an image, in bytes.
#[derive(Debug, Serialize)]
struct Saved {
    image: String,
    /// In blocks of 8 KiB that are not zeroes.
    data_bytes: u64,
    /// Each block compressed by itself, to the byte.
    lz4_bound_bytes: u64,
    zstd_bound_bytes: u64,
    /// On a volume with `--compression lz4`, when all is destaged.
    lz4_bytes: u64,
    /// The same after `quoin volume reduce`.
    lz4_reduced_bytes: u64,
    /// On a volume with `--compression zstd`, after `quoin volume reduce`.
    zstd_bytes: u64,
    metadata_bytes: u64,
    write_seconds: f64,
    reduce_seconds: f64,
    peers: Vec<Peer>,
}

#[derive(Debug, Serialize)]
struct Peer {
    name: &'static str,
    /// Of data and metadata.
    bytes: u64,
}

/// What a layout adds to the data that is stored.
#[derive(Debug, Serialize)]
struct OfLayout {
    layout: String,
    data_bytes: u64,
    stored_bytes: u64,
    /// Slabs of drives that are in use, with metadata, copies, parity, and what is not filled yet.
    drive_bytes: u64,
}

/// All databases, as the pool tells it.
#[derive(Debug, Serialize)]
struct Stage {
    what: &'static str,
    space: Space,
}

#[derive(Debug, Serialize)]
struct Outcome {
    images: Vec<Saved>,
    layouts: Vec<OfLayout>,
    copies: Vec<Stage>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    std::fs::create_dir_all(&options.dir)?;
    let dir = tempfile::Builder::new().prefix("quoin-savings-").tempdir_in(&options.dir)?;
    let binary = binary(options.quoin.as_deref())?;
    let mut array = Array::init_on(&binary, dir.path(), options.drives, options.drive_size, &[], &[])?;
    let mut outcome = Outcome { images: Vec::new(), layouts: Vec::new(), copies: Vec::new() };
    for image in &options.images {
        let saved =
            measure(options, &mut array, dir.path(), image).with_context(|| image.display().to_string())?;
        eprintln!(
            "{}: {:.2}:1 by lz4, {:.2}:1 by zstd",
            saved.image,
            ratio(saved.data_bytes, saved.lz4_bytes),
            ratio(saved.data_bytes, saved.zstd_bytes)
        );
        outcome.images.push(saved);
    }
    // Slabs that are not full matter least for the most data.
    let largest = outcome.images.iter().zip(&options.images).max_by_key(|(saved, _)| saved.lz4_bytes);
    let (_, largest) = largest.context("an image to measure layouts with")?;
    for layout in &options.layouts {
        let of = measure_layout(&mut array, layout, largest).with_context(|| format!("layout {layout}"))?;
        outcome.layouts.push(of);
    }
    outcome.copies = measure_copies(options, &mut array)?;
    match options.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&outcome)?),
        Output::Table => show(options, &outcome),
    }
    Ok(true)
}

fn measure(options: &Options, array: &mut Array, dir: &Path, image: &Path) -> Result<Saved> {
    let bound = bound(image)?;
    array.format_with(vec![])?;
    let serving = array.serve_within(Some(MEMORY_BYTES))?;
    serving.create_host()?;
    let write_seconds = restore(&serving, image, "lz4", 1, &["--compression", "lz4"])?;
    let lz4 = settled(&serving)?;
    serving.tell(&["volume", "reduce", "lz4", "--wait"])?;
    let lz4_reduced = settled(&serving)?;
    drop(serving);

    array.format_with(vec![])?;
    let serving = array.serve_within(Some(MEMORY_BYTES))?;
    serving.create_host()?;
    restore(&serving, image, "zstd", 1, &["--compression", "zstd"])?;
    let began = Instant::now();
    serving.tell(&["volume", "reduce", "zstd", "--wait"])?;
    let reduce_seconds = began.elapsed().as_secs_f64();
    let zstd = settled(&serving)?;
    ensure!(
        lz4.written_bytes == bound.data_bytes && zstd.written_bytes == bound.data_bytes,
        "of {} bytes of data the array has {} and {}",
        bound.data_bytes,
        lz4.written_bytes,
        zstd.written_bytes
    );
    drop(serving);
    Ok(Saved {
        image: image.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        data_bytes: bound.data_bytes,
        lz4_bound_bytes: bound.lz4_bytes,
        zstd_bound_bytes: bound.zstd_bytes,
        lz4_bytes: lz4.physical_bytes,
        lz4_reduced_bytes: lz4_reduced.physical_bytes,
        zstd_bytes: zstd.physical_bytes,
        metadata_bytes: zstd.metadata_bytes,
        write_seconds,
        reduce_seconds,
        peers: if options.alone { Vec::new() } else { peers(dir, image)? },
    })
}

struct Bound {
    data_bytes: u64,
    lz4_bytes: u64,
    zstd_bytes: u64,
}

/// What the codecs make of each block by itself.
fn bound(image: &Path) -> Result<Bound> {
    let file = File::open(image)?;
    let (mut piece, mut out) = (vec![0; IO_BYTES], vec![0; MOST_PACKED_BYTES]);
    let mut zstd = zstd::bulk::Compressor::new(1)?;
    zstd.include_contentsize(false)?;
    zstd.include_checksum(false)?;
    let mut bound = Bound { data_bytes: 0, lz4_bytes: 0, zstd_bytes: 0 };
    for offset in (0..file.metadata()?.len()).step_by(IO_BYTES) {
        let len = read_piece(&file, offset, &mut piece)?;
        for block in piece[..len].chunks(BLOCK_BYTES).filter(|block| !is_zero(block)) {
            let lz4 = lzzzz::lz4::compress(block, &mut out, lzzzz::lz4::ACC_LEVEL_DEFAULT);
            let zstd = zstd.compress_to_buffer(block, &mut out[..]);
            bound.data_bytes += BLOCK_BYTES as u64;
            bound.lz4_bytes += lz4.ok().filter(|len| *len > 0).unwrap_or(BLOCK_BYTES) as u64;
            bound.zstd_bytes += zstd.unwrap_or(BLOCK_BYTES) as u64;
        }
    }
    Ok(bound)
}

/// Reads as much as there is at this place.
fn read_piece(file: &File, offset: u64, piece: &mut [u8]) -> Result<usize> {
    let left = file.metadata()?.len().saturating_sub(offset);
    let len = (piece.len() as u64).min(left) as usize;
    file.read_exact_at(&mut piece[..len], offset)?;
    Ok(len)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Makes a volume of an image's size and writes what the image has to it, as fast as it can. Returns how long writing took.
fn restore(serving: &Serving<'_>, image: &Path, volume: &str, lun: u16, set: &[&str]) -> Result<f64> {
    restore_at(serving, image, volume, lun, set, DEPTH)
}

/// The same with so many writes in flight.
fn restore_at(
    serving: &Serving<'_>,
    image: &Path,
    volume: &str,
    lun: u16,
    set: &[&str],
    depth: usize,
) -> Result<f64> {
    let bytes = std::fs::metadata(image)?.len().next_multiple_of(IO_BYTES as u64).to_string();
    serving.tell(&[&["volume", "create", volume, "--size", &bytes], set].concat())?;
    let at = serving.show(volume, lun)?;
    let began = Instant::now();
    write_image(&at, image, depth)?;
    Ok(began.elapsed().as_secs_f64())
}

fn write_image(at: &At, image: &Path, depth: usize) -> Result<()> {
    let mut connection = Connection::login(&at.endpoint(), 0)?;
    let block_bytes = connection.capacity()?.block_bytes;
    let file = File::open(image)?;
    let mut source = Image { end: file.metadata()?.len(), file, next: 0 };
    let shape = Shape { depth, largest_bytes: IO_BYTES, block_bytes, fua: false };
    initiator::run(&mut connection, &mut source, shape)?;
    connection.logout()
}

/// Writes what an image has, but for zeroes.
struct Image {
    file: File,
    next: u64,
    end: u64,
}

impl Source for Image {
    fn wants_data(&self) -> bool {
        false
    }

    fn next(&mut self, _: Instant) -> Next {
        let mut piece = vec![0; IO_BYTES];
        while self.next < self.end {
            let offset = self.next;
            self.next += IO_BYTES as u64;
            match read_piece(&self.file, offset, &mut piece) {
                Ok(len) if is_zero(&piece[..len]) => {}
                // An error is met again when the write is filled in.
                _ => return Next::Start(Io { write: true, offset, len: IO_BYTES as u32 }),
            }
        }
        Next::Done
    }

    fn fill(&mut self, io: Io, data: &mut [u8]) {
        data.fill(0);
        read_piece(&self.file, io.offset, data).expect("the image can be read");
    }

    fn completed(&mut self, _: Io, _: &[u8], _: Instant, _: Instant) -> Result<()> {
        Ok(())
    }
}

/// What `quoin space` tells.
#[derive(Debug, Clone, Copy, Serialize)]
struct Space {
    provisioned_bytes: u64,
    written_bytes: u64,
    unique_bytes: u64,
    physical_bytes: u64,
    metadata_bytes: u64,
}

/// Waits until all is destaged, and nothing is left to be freed.
fn settled(serving: &Serving<'_>) -> Result<Space> {
    let space = || -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&serving.tell(&["space", "-o", "json"])?)?)
    };
    // What was stored in haste is packed later.
    let mut last = (0, Instant::now());
    wait_until("all is destaged and packed", SETTLED_LIMIT, || {
        let space = space()?;
        let physical_bytes = number(&space, "/physical_bytes")?;
        if physical_bytes != last.0 {
            last = (physical_bytes, Instant::now());
        }
        let is_moving = last.1.elapsed() < STEADY_FOR;
        Ok(!is_moving && number(&space, "/buffered_bytes")? == 0 && number(&space, "/removing_bytes")? == 0)
    })?;
    let space = space()?;
    let bytes = |name: &str| number(&space, &format!("/{name}_bytes"));
    Ok(Space {
        provisioned_bytes: bytes("provisioned")?,
        written_bytes: bytes("written")?,
        unique_bytes: bytes("unique")?,
        physical_bytes: bytes("physical")?,
        metadata_bytes: bytes("metadata")?,
    })
}

fn measure_layout(array: &mut Array, layout: &str, image: &Path) -> Result<OfLayout> {
    array.format_with(vec![format!("--layout={layout}"), "--domain=file".to_owned()])?;
    let serving = array.serve_within(Some(MEMORY_BYTES))?;
    serving.create_host()?;
    let in_use = || -> Result<u64> {
        let status = serving.status()?;
        let drives = status["drives"].as_array().context("`quoin status -o json` has no list drives")?;
        drives.iter().map(|drive| number(drive, "/used_bytes")).sum()
    };
    let before = in_use()?;
    // In no haste, so that nothing is moved afterwards.
    restore_at(&serving, image, "lz4", 1, &["--compression", "lz4"], 1)?;
    let space = settled(&serving)?;
    Ok(OfLayout {
        layout: layout.to_owned(),
        data_bytes: space.written_bytes,
        stored_bytes: space.physical_bytes,
        drive_bytes: in_use()? - before,
    })
}

/// Images that were restored from an image: `NAME-1.copy` and so on, beside `NAME.img`.
fn copies_of(image: &Path) -> Vec<PathBuf> {
    let stem = image.file_stem().unwrap_or_default().to_string_lossy();
    let numbered = |number: u32| image.with_file_name(format!("{stem}-{number}.copy"));
    (1..).map(numbered).take_while(|copy| copy.exists()).collect()
}

/// All images that have copies, in one pool: each once, then with its copies, then with snapshots of all.
fn measure_copies(options: &Options, array: &mut Array) -> Result<Vec<Stage>> {
    let sets: Vec<_> = options.images.iter().map(|image| (image, copies_of(image))).collect();
    let sets: Vec<_> = sets.iter().filter(|(_, copies)| !copies.is_empty()).collect();
    if sets.is_empty() {
        return Ok(Vec::new());
    }
    for (image, copies) in &sets {
        let (image, count) = (image.display(), copies.len());
        ensure!(count == COPIES, "{COPIES} restored copies are compared, and {image} has {count}");
    }
    array.format_with(vec![])?;
    let serving = array.serve_within(Some(MEMORY_BYTES))?;
    serving.create_host()?;
    let mut volumes = Vec::new();
    let mut add = |image: &Path| -> Result<()> {
        let (name, lun) = (format!("v{}", volumes.len()), 1 + volumes.len() as u16);
        restore(&serving, image, &name, lun, &["--compression", "lz4", "--dedup", "on"])?;
        volumes.push((name, lun, image.to_owned()));
        Ok(())
    };
    sets.iter().try_for_each(|(image, _)| add(image))?;
    let mut stages = vec![Stage { what: "each database once", space: settled(&serving)? }];
    sets.iter().flat_map(|(_, copies)| copies).try_for_each(|copy| add(copy))?;
    stages.push(Stage { what: "and five restored copies of each", space: settled(&serving)? });
    for snapshot in 0..SNAPSHOTS {
        for (name, lun, image) in &volumes {
            serving.tell(&["snapshot", "create", name, &format!("{name}-{snapshot}")])?;
            change_some(&serving.lun(*lun), image, (snapshot * 100 + u64::from(*lun)) << 32)?;
        }
    }
    stages.push(Stage { what: "and five snapshots of all of these", space: settled(&serving)? });
    Ok(stages)
}

/// Writes one block of [`CHANGED_ONE_OF`] again, with other bytes at its begin, as a database stamps a page that it changes.
fn change_some(at: &At, image: &Path, stamp: u64) -> Result<()> {
    let mut connection = Connection::login(&at.endpoint(), 0)?;
    let block_bytes = connection.capacity()?.block_bytes;
    let file = File::open(image)?;
    let (mut block, mut rng) = (vec![0; BLOCK_BYTES], Rng::new(stamp));
    let mut to_change = Vec::new();
    for offset in (0..file.metadata()?.len()).step_by(BLOCK_BYTES) {
        let len = read_piece(&file, offset, &mut block)?;
        if rng.below(CHANGED_ONE_OF) == 0 && !is_zero(&block[..len]) {
            to_change.push(offset);
        }
    }
    let mut source = Stamp { image: Image { end: 0, file, next: 0 }, to_change, stamp };
    let shape = Shape { depth: DEPTH, largest_bytes: BLOCK_BYTES, block_bytes, fua: false };
    initiator::run(&mut connection, &mut source, shape)?;
    connection.logout()
}

/// Writes some blocks of an image with a stamp each.
struct Stamp {
    image: Image,
    to_change: Vec<u64>,
    stamp: u64,
}

impl Source for Stamp {
    fn wants_data(&self) -> bool {
        false
    }

    fn next(&mut self, _: Instant) -> Next {
        let next = self.to_change.pop();
        next.map_or(Next::Done, |offset| Next::Start(Io { write: true, offset, len: BLOCK_BYTES as u32 }))
    }

    fn fill(&mut self, io: Io, data: &mut [u8]) {
        self.image.fill(io, data);
        self.stamp += 1;
        data[..8].copy_from_slice(&self.stamp.to_le_bytes());
    }

    fn completed(&mut self, _: Io, _: &[u8], _: Instant, _: Instant) -> Result<()> {
        Ok(())
    }
}

/// What others make of the same image.
fn peers(dir: &Path, image: &Path) -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    for (name, kind) in [("qcow2 zlib", "zlib"), ("qcow2 zstd", "zstd")] {
        let out = dir.join("peer.qcow2");
        let kind = format!("compression_type={kind}");
        succeed(
            Command::new("qemu-img")
                .args(["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", &kind])
                .args([image, &out]),
        )?;
        peers.push(Peer { name, bytes: std::fs::metadata(&out)?.blocks() * 512 });
        std::fs::remove_file(out)?;
    }
    for (name, compress) in [("btrfs lzo", "lzo"), ("btrfs zstd:1", "zstd:1"), ("btrfs zstd:3", "zstd:3")] {
        peers.push(Peer { name, bytes: btrfs(dir, image, compress)? });
    }
    Ok(peers)
}

/// What an image takes in a file system of its own.
fn btrfs(dir: &Path, image: &Path, compress: &str) -> Result<u64> {
    let (drive, at) = (dir.join("peer.btrfs"), dir.join("peer"));
    let bytes = 2 * std::fs::metadata(image)?.len() + (1 << 30);
    File::create(&drive)?.set_len(bytes)?;
    std::fs::create_dir_all(&at)?;
    succeed(Command::new("mkfs.btrfs").args(["-q", "-m", "single", "-d", "single"]).arg(&drive))?;
    let options = format!("loop,compress-force={compress}");
    succeed(Command::new("mount").args(["-t", "btrfs", "-o", &options]).args([&drive, &at]))?;
    let filled = used(&at, |at| {
        succeed(Command::new("cp").arg("--sparse=always").arg(image).arg(at.join("image")))?;
        succeed(Command::new("sync").args(["-f"]).arg(at))
    });
    succeed(Command::new("umount").arg(&at))?;
    std::fs::remove_file(drive)?;
    filled
}

/// By how much more of a file system is used when this is done.
fn used(at: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<u64> {
    let used = || -> Result<u64> {
        let fs = rustix::fs::statvfs(at)?;
        Ok((fs.f_blocks - fs.f_bfree) * fs.f_frsize)
    };
    let before = used()?;
    fill(at)?;
    Ok(used()? - before)
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {}", line(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", line(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

fn show(options: &Options, outcome: &Outcome) {
    for (name, value) in machine::describe(&options.dir) {
        println!("- {name}: {value}");
    }
    println!("\n{}\n", images(&outcome.images));
    println!("{}", layouts(&outcome.layouts));
    if let Some(first) = outcome.copies.first() {
        println!("\n{}", copies(first, &outcome.copies));
    }
}

fn images(images: &[Saved]) -> Table {
    let peers: Vec<&str> = images[0].peers.iter().map(|peer| peer.name).collect();
    let head = [
        &["image", "data MB", "lz4 bound", "lz4", "% of bound", "after reduce", "% of bound"][..],
        &["zstd bound", "zstd", "% of bound", "metadata MB"],
        &peers,
    ];
    let mut rows = table(&head.concat());
    for saved in images {
        let data = saved.data_bytes;
        let of = |bytes: u64| format!("{:.2}", ratio(data, bytes));
        let percent = |bound: u64, bytes: u64| format!("{:.1}", 100.0 * ratio(bound, bytes));
        let mut row = vec![
            saved.image.clone(),
            megabytes(data),
            of(saved.lz4_bound_bytes),
            of(saved.lz4_bytes),
            percent(saved.lz4_bound_bytes, saved.lz4_bytes),
            of(saved.lz4_reduced_bytes),
            percent(saved.lz4_bound_bytes, saved.lz4_reduced_bytes),
            of(saved.zstd_bound_bytes),
            of(saved.zstd_bytes),
            percent(saved.zstd_bound_bytes, saved.zstd_bytes),
            megabytes(saved.metadata_bytes),
        ];
        row.extend(saved.peers.iter().map(|peer| of(peer.bytes)));
        rows.add_row(row);
    }
    finish(rows, &[0])
}

fn layouts(layouts: &[OfLayout]) -> Table {
    let mut rows = table(&["layout", "stored MB", "on drives MB", "drives : stored", "data : drives"]);
    for of in layouts {
        rows.add_row(vec![
            of.layout.clone(),
            megabytes(of.stored_bytes),
            megabytes(of.drive_bytes),
            format!("{:.3}", ratio(of.drive_bytes, of.stored_bytes)),
            format!("{:.2}", ratio(of.data_bytes, of.drive_bytes)),
        ]);
    }
    finish(rows, &[0])
}

fn copies(first: &Stage, stages: &[Stage]) -> Table {
    let columns = [
        "in the pool",
        "written MB",
        "stored MB",
        "to the first",
        "deduplication",
        "reduction",
        "efficiency",
    ];
    let mut rows = table(&columns);
    for Stage { what, space } in stages {
        let of = |bytes: u64, to: u64| format!("{:.2}", ratio(bytes, to));
        rows.add_row(vec![
            (*what).to_owned(),
            megabytes(space.written_bytes),
            megabytes(space.physical_bytes),
            of(space.physical_bytes, first.space.physical_bytes),
            of(space.written_bytes, space.unique_bytes),
            of(space.written_bytes, space.physical_bytes),
            of(space.provisioned_bytes, space.physical_bytes),
        ]);
    }
    finish(rows, &[0])
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
