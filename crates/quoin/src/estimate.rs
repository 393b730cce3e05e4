//! `quoin estimate`: what data of a user's would take on an array. Needs no array.

use indicatif::{ProgressBar, ProgressStyle};
use quoin_base::Layout;
use quoin_cli::{Failure, Format, Global, Output, parse_size, size_text, table};
use quoin_estimate::{
    BESIDE, Dedup, Estimate, EstimateError, EstimateOptions, Progress, Range, Reduced, Scope, WHICH_VOLUMES,
    page,
};
use quoin_reduction::Codec;
use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

/// The block of a pool: tables are of it, if it is among those that are asked for.
const POOL_BLOCK_BYTES: u32 = 8 << 10;
/// Columns of the longest bar.
const BAR_COLUMNS: f64 = 24.0;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Options of `quoin estimate`.
#[derive(clap::Args)]
#[command(
    after_help = "Reads only, and needs no array. Volumes with --compression and --dedup on store data so, in blocks of \
                        8 KiB; all others as it is.\n\nEach PATH is a set of its own: a file, a device, or a directory with \
                        all files below it on the same file system. Holes of sparse files are not read. A device or a file \
                        that changes meanwhile is read as it is at each moment.\n\n\
                        With --sample less is read. How well data is compressed is known well then. What deduplication saves \
                        is known only within a wide range, and the least of it is what counts here.\n\n\
                        Examples:\n  \
                        quoin estimate /var/lib/postgresql\n  \
                        quoin estimate /dev/vg0/sales /dev/vg0/sales_copy --html estimate.html\n  \
                        quoin estimate /srv/images --sample 10% --codec lz4,zstd-3 --layout raid6,8+2\n  \
                        quoin estimate db.img --block 8K -o json"
)]
pub(crate) struct Args {
    /// Files, directories or devices; each is a set
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Block sizes, 4K to 64K [default: 4K,8K,16K,32K]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = block)]
    block: Vec<u32>,
    /// Codecs: lz4, zstd-LEVEL [default: lz4,zstd-1,zstd-3]
    #[arg(long, value_name = "CODEC", value_delimiter = ',')]
    codec: Vec<Codec>,
    /// Layouts of drives [default: none,mirror,mirror-3,raid5,raid6,8+2]
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',')]
    layout: Vec<Layout>,
    /// How much of the data is read
    #[arg(long, value_name = "PERCENT", default_value = "100%", value_parser = percent)]
    sample: f64,
    /// Threads that read and compress [default: one for each processor]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Writes a page with charts there, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replaces the page if it is there
    #[arg(long, requires = "html")]
    force: bool,
}

fn block(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?.0;
    let wrong = || format!("{text} is no block size: say 4K, 8K, 16K, 32K or 64K");
    u32::try_from(bytes).ok().filter(|_| EstimateOptions::is_block(bytes)).ok_or_else(wrong)
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    let wrong = || format!("{text:?} is no share: say a percentage above 0 and up to 100, such as 10%");
    number.ok().filter(|percent| *percent > 0.0 && *percent <= 100.0).map(|p| p / 100.0).ok_or_else(wrong)
}

pub(crate) fn run(global: &Global, args: Args) -> Result<(), Failure> {
    let output = Output { format: global.output, headers: !global.no_headers };
    let or = |default: EstimateOptions| EstimateOptions {
        block_bytes: given(&args.block, default.block_bytes),
        codecs: given(&args.codec, default.codecs),
        layouts: given(&args.layout, default.layouts),
        sample: args.sample,
        threads: args.threads.map_or(default.threads, usize::from),
        ..default
    };
    let options = or(EstimateOptions::default());
    // Before it reads for hours.
    if let Some(path) = &args.html {
        check_page(path, &args)?;
    }
    let estimate = with_progress(&args.paths, &options).map_err(|error| failure(&error))?;
    let block = block_shown(&options);
    if global.output == Format::Csv {
        output.list(&rows(&estimate), "", |_| String::new());
    } else {
        output.show(&estimate, |estimate| text(estimate, block));
    }
    if let Some(path) = &args.html {
        write_page(path, &page(&estimate, block)).map_err(|error| unwritable(path, &error))?;
        output.say(&format!("\nThe page is {}.", path.display()));
    }
    Ok(())
}

/// What was given, each once; what is meant if nothing was.
fn given<T: Clone + PartialEq>(given: &[T], default: Vec<T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::new();
    for one in given {
        if !once.contains(one) {
            once.push(one.clone());
        }
    }
    if once.is_empty() { default } else { once }
}

fn block_shown(options: &EstimateOptions) -> u32 {
    let first = options.block_bytes.first().copied().unwrap_or(POOL_BLOCK_BYTES);
    if options.block_bytes.contains(&POOL_BLOCK_BYTES) { POOL_BLOCK_BYTES } else { first }
}

/// Whether the page can be written, as far as that can be told before.
fn check_page(path: &Path, args: &Args) -> Result<(), Failure> {
    let same =
        |one: &PathBuf| matches!((fs::canonicalize(one), fs::canonicalize(path)), (Ok(a), Ok(b)) if a == b);
    let refused = |why: &str, next: &str| Err(no_page(path, why, next));
    match fs::symlink_metadata(path) {
        Ok(_) if args.paths.iter().any(same) => refused("it is what is to be read", "name another file"),
        Ok(metadata) if !metadata.is_file() => refused("it is no ordinary file", "name another file"),
        Ok(_) if !args.force => {
            refused("it is there already", "name another file, or replace it with --force")
        }
        Ok(_) => Ok(()),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            match fs::metadata(folder.unwrap_or(Path::new("."))) {
                Ok(metadata) if metadata.is_dir() => Ok(()),
                Ok(_) => refused("its folder is none", "name another file"),
                Err(error) => Err(unwritable(path, &error)),
            }
        }
    }
}

/// Writes the page whole, or not at all.
fn write_page(path: &Path, page: &str) -> std::io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let written = fs::write(&part, page).and_then(|()| fs::rename(&part, path));
    written.inspect_err(|_| drop(fs::remove_file(&part)))
}

/// What CSV has a line of.
#[derive(serde::Serialize)]
struct Row<'a> {
    set: &'a str,
    files: u64,
    logical_bytes: u64,
    #[serde(flatten)]
    option: &'a Reduced,
}

fn rows(estimate: &Estimate) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for Scope { name, files, logical_bytes, options, .. } in estimate.sets.iter().chain([&estimate.all]) {
        let row = |option| Row { set: name, files: *files, logical_bytes: *logical_bytes, option };
        rows.extend(options.iter().map(row));
    }
    rows
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    no_page(path, error, "name a file that can be written")
}

fn no_page(path: &Path, why: impl Display, next: &str) -> Failure {
    let path = path.display().to_string();
    Failure::new("no page", &path, format!("{path}: {why}"), next)
}

fn failure(error: &EstimateError) -> Failure {
    let next = match error {
        EstimateError::Unreadable { .. } => {
            "name paths that are there, and that you may read (devices: as root)"
        }
        EstimateError::Unfit { .. } => "name files, directories or block devices",
        EstimateError::Nothing(_) => "name paths with data",
        EstimateError::Cancelled | EstimateError::Thread(_) => "try again",
    };
    Failure::new("no estimate", "the data", error.to_string(), next)
}

/// Estimates, and shows how far it is on standard error if that is a terminal.
fn with_progress(paths: &[PathBuf], options: &EstimateOptions) -> Result<Estimate, EstimateError> {
    let progress = Arc::new(Progress::default());
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{percent:>3} % {bar:30} {bytes} of {total_bytes}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    thread::scope(|scope| {
        let estimating = scope.spawn(|| quoin_estimate::estimate(paths, options, &progress));
        while !estimating.is_finished() {
            bar.set_length(progress.all_bytes());
            bar.set_position(progress.done_bytes());
            thread::sleep(LOOK_EVERY);
        }
        bar.finish_and_clear();
        estimating.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// An estimate for people.
fn text(estimate: &Estimate, block_bytes: u32) -> String {
    let Estimate { all, sets, skipped, seconds, .. } = estimate;
    let mut parts = vec![read(all, *seconds) + "\n" + &estimate.quality() + "\n" + WHICH_VOLUMES];
    parts.push(format!("Blocks of {}", size_text(block_bytes.into())) + "\n" + &options(all, block_bytes));
    if all.block_sizes().len() > 1 {
        parts.push("Block sizes: reduction ratio\n".to_owned() + &block_sizes(all));
    }
    parts.push(
        format!(
            "Space on drives, metadata included (overall efficiency: size of the data to that). {BESIDE}\n"
        ) + &layouts(all, block_bytes),
    );
    if sets.len() > 1 {
        parts.push("Each set\n".to_owned() + &each_set(sets, block_bytes));
    }
    if !skipped.is_empty() {
        // Failures first.
        let mut sorted: Vec<_> = skipped.iter().collect();
        sorted.sort_by_key(|one| !one.failed);
        let lines = sorted.into_iter().map(|one| format!("  {}: {}", one.path, one.why)).collect();
        let all = skipped.len() as u64 + estimate.more_skipped;
        parts.push(format!("Not read ({all})\n{}", shortened(lines, all)));
    }
    parts.join("\n\n")
}

/// The first of many lines, and how many more there are.
fn shortened(mut lines: Vec<String>, all: u64) -> String {
    const MOST: usize = 10;
    lines.truncate(MOST);
    let (more, first) = (all - lines.len() as u64, lines.join("\n"));
    if more == 0 { first } else { format!("{first}\n  and {more} more: -o json names up to a thousand") }
}

fn read(all: &Scope, seconds: f64) -> String {
    let files = if all.files == 1 { "1 file".to_owned() } else { format!("{} files", all.files) };
    let zero = all
        .logical_bytes
        .saturating_sub(all.options.first().map_or(0, |option| option.mapped_bytes.estimate));
    format!(
        "{} in {files}, of which {} are zeroes or holes; {} read in {seconds:.1} s ({}/s)",
        size_text(all.logical_bytes),
        size_text(zero),
        size_text(all.read_bytes),
        size_text((all.read_bytes as f64 / seconds.max(0.001)) as u64),
    )
}

fn options(all: &Scope, block_bytes: u32) -> String {
    let of_size = || all.options.iter().filter(|option| option.block_bytes == block_bytes);
    let most = of_size().map(|option| option.stored_bytes.estimate).max().unwrap_or(1).max(1);
    let is_exact = of_size().all(|option| option.stored_bytes.is_exact());
    let mut header = vec![
        "dedup",
        "compression",
        "stored",
        "range",
        "metadata",
        "dedup ratio",
        "compr. ratio",
        "reduction",
        "",
    ];
    let mut rows: Vec<_> = of_size().map(|option| row(option, most)).collect();
    if is_exact {
        header.remove(3);
        rows.iter_mut().for_each(|row| drop(row.remove(3)));
    }
    table(&header, rows, "")
}

fn row(option: &Reduced, most: u64) -> Vec<String> {
    let Range { estimate, least, most: at_most } = option.stored_bytes;
    let columns = estimate as f64 / most as f64 * BAR_COLUMNS;
    vec![
        dedup_name(option.dedup).to_owned(),
        option.compression.clone(),
        size_text(estimate),
        if least == at_most {
            String::new()
        } else {
            format!("{} to {}", size_text(least), size_text(at_most))
        },
        size_text(option.metadata_bytes),
        ratio(option.dedup_ratio),
        ratio(option.compression_ratio),
        ratio(option.reduction_ratio),
        bar(columns),
    ]
}

/// So many columns, in eighths.
fn bar(columns: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (columns * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn dedup_name(dedup: Dedup) -> &'static str {
    match dedup {
        Dedup::Off => "off",
        Dedup::Within => "within sets",
        Dedup::Across => "across sets",
    }
}

fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}:1")
}

fn block_sizes(all: &Scope) -> String {
    let dedup = all.most_dedup();
    let compressions = all.compressions();
    let mut header = vec!["block".to_owned(), "dedup".to_owned()];
    let names = compressions.iter().skip(1);
    header.extend(names.clone().cloned());
    header.extend(names.map(|name| format!("dedup+{name}")));
    let cell = |block: u32, name: &str, dedup: Dedup| {
        all.option(block, name, dedup).map_or_else(String::new, |option| ratio(option.reduction_ratio))
    };
    let row = |block: u32| {
        let names = || compressions.iter().skip(1);
        let mut row = vec![size_text(block.into()), cell(block, "off", dedup)];
        row.extend(names().map(|name| cell(block, name, Dedup::Off)));
        row.extend(names().map(|name| cell(block, name, dedup)));
        row
    };
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    table(&header, all.block_sizes().into_iter().map(row).collect(), "")
}

fn layouts(all: &Scope, block_bytes: u32) -> String {
    let dedup = all.most_dedup();
    let mut options: Vec<_> = all.option(block_bytes, "off", Dedup::Off).into_iter().collect();
    let mut header = vec!["layout".to_owned(), "no reduction".to_owned()];
    for name in all.compressions() {
        let Some(option) = all.option(block_bytes, &name, dedup) else { continue };
        header.push(if name == "off" { "dedup".to_owned() } else { format!("dedup+{name}") });
        options.push(option);
    }
    let Some(first) = options.first() else { return String::new() };
    let rows = first.layouts.iter().enumerate().map(|(at, laid)| {
        let cells = options.iter().filter_map(|option| option.layouts.get(at));
        let cells = cells.map(|laid| format!("{} ({})", size_text(laid.raw_bytes), ratio(laid.efficiency)));
        std::iter::once(laid.layout.clone()).chain(cells).collect()
    });
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    table(&header, rows.collect(), "")
}

fn each_set(sets: &[Scope], block_bytes: u32) -> String {
    let compressions = sets.first().map(Scope::compressions).unwrap_or_default();
    let mut header = vec!["set".to_owned(), "files".to_owned(), "size".to_owned(), "dedup".to_owned()];
    header.extend(compressions.iter().skip(1).map(|name| format!("dedup+{name}")));
    let rows = sets.iter().map(|set| {
        let cells = compressions.iter().map(|name| {
            let option = set.option(block_bytes, name, Dedup::Within);
            option.map_or_else(String::new, |option| ratio(option.reduction_ratio))
        });
        let first = [set.name.clone(), set.files.to_string(), size_text(set.logical_bytes)];
        first.into_iter().chain(cells).collect()
    });
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    table(&header, rows.collect(), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_block_sizes_are_read() {
        assert_eq!(percent("10%"), Ok(0.1));
        assert_eq!(percent("100"), Ok(1.0));
        for bad in ["0", "0%", "101%", "-1", "ten", "", "NaN", "inf"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
        assert_eq!(block("8K"), Ok(8192));
        for bad in ["2K", "12K", "128K", "0", "x"] {
            assert!(block(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bars_are_as_long_as_they_are_to_be() {
        assert_eq!(bar(2.5), "██▌");
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(BAR_COLUMNS).chars().count(), 24);
    }
}
