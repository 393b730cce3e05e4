//! An estimate as one page of HTML that needs nothing else: to be kept, printed and sent.

use crate::{Dedup, Estimate, Reduced, Scope};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use plotters::prelude::*;

/// Width and height of a chart.
const CHART: (u32, u32) = (900, 380);
const COLOURS: [RGBColor; 6] = [
    RGBColor(140, 140, 140),
    RGBColor(31, 119, 180),
    RGBColor(44, 160, 44),
    RGBColor(214, 110, 20),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
];
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
                     table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}\
                     th,td{padding:.25rem .75rem;border-bottom:1px solid #ddd;text-align:right}\
                     th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}\
                     .note{color:#555}";

/// The page. `block_bytes` is the block size that its tables are of; charts show all.
pub fn page(estimate: &Estimate, block_bytes: u32) -> String {
    let Estimate { all, sets, skipped, .. } = estimate;
    let dedup = all.most_dedup();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Data reduction estimate" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Data reduction estimate" }
                p {
                    (size(all.read_bytes)) " read of " (size(all.logical_bytes)) " in " (all.files) " files, of which "
                    (size(all.hole_bytes)) " are holes. "
                    (estimate.quality()) " " (crate::WHICH_VOLUMES)
                }
                @for (dedup, title) in charts(all) {
                    h2 { (title) }
                    (PreEscaped(chart(all, dedup).unwrap_or_else(|error| format!("<!-- no chart: {error} -->"))))
                }
                h2 { "With blocks of " (block_bytes / 1024) " KiB" }
                (options(all, block_bytes))
                h2 { "Space on drives" }
                p class="note" {
                    "Raw bytes, metadata included, of the upper end of ranges; in brackets the size of the data to them. "
                    (crate::BESIDE)
                }
                (layouts(all, block_bytes, dedup))
                @if sets.len() > 1 {
                    h2 { "Each set" }
                    (each_set(sets, block_bytes))
                }
                @if !skipped.is_empty() {
                    h2 { "Not read" }
                    ul { @for one in skipped { li { (one.path) ": " (one.why) } } }
                }
                h2 { "How to read this" }
                p class="note" {
                    "Deduplication stores equal blocks once: ratio of blocks that are not all zeroes to those that are left. \
                     Compression shortens each block that is left, and stores it plain if that saves less than a sixteenth. \
                     Files are taken to begin at a block, as they do in most file systems; what an array gets may be aligned \
                     otherwise, and holds free space of the file system, too."
                }
            }
        }
    }
    .into_string()
}

/// The charts there are, with their titles.
fn charts(all: &Scope) -> Vec<(Dedup, &'static str)> {
    let mut charts = vec![(Dedup::Off, "Stored without deduplication")];
    match all.most_dedup() {
        Dedup::Off => {}
        dedup => charts.push((dedup, "Stored with deduplication")),
    }
    charts
}

/// Bars of what is stored, by block size and codec.
fn chart(scope: &Scope, dedup: Dedup) -> Result<String, Box<dyn std::error::Error>> {
    let sizes = scope.block_sizes();
    let series = scope.compressions();
    let most = scope.options.iter().map(|option| option.mapped_bytes.estimate).max().unwrap_or(1).max(1);
    let (unit, name) = unit(most);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, CHART).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..sizes.len() as f64, 0.0..most as f64 / unit * 1.15)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .y_desc(name)
            .draw()?;
        for (at, bytes) in sizes.iter().enumerate() {
            let label = format!("{} KiB blocks", bytes / 1024);
            let style = ("sans-serif", 15).into_font().color(&BLACK);
            let (x, y) = chart.backend_coord(&(at as f64 + 0.5, 0.0));
            root.draw(&Text::new(label, (x - 40, y + 10), style))?;
        }
        let width = 0.8 / series.len().max(1) as f64;
        for (nth, compression) in series.iter().enumerate() {
            let colour = COLOURS[nth % COLOURS.len()];
            let bars = sizes.iter().enumerate().filter_map(|(at, bytes)| {
                let option = scope.option(*bytes, compression, dedup)?;
                let left = at as f64 + 0.1 + nth as f64 * width;
                let top = option.stored_bytes.estimate as f64 / unit;
                Some(Rectangle::new([(left, 0.0), (left + width * 0.9, top)], colour.filled()))
            });
            chart
                .draw_series(bars)?
                .label(compression.clone())
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}

fn options(scope: &Scope, block_bytes: u32) -> Markup {
    html! {
        table {
            tr {
                th { "Deduplication" } th { "Compression" } th { "Stored" } th { "Range" } th { "Metadata" }
                th { "Dedup ratio" } th { "Compression ratio" } th { "Reduction ratio" }
            }
            @for option in scope.options.iter().filter(|option| option.block_bytes == block_bytes) {
                tr {
                    td { (dedup_name(option.dedup)) } td { (option.compression) }
                    td { (size(option.stored_bytes.estimate)) } td { (range(option)) }
                    td { (size(option.metadata_bytes)) }
                    td { (ratio(option.dedup_ratio)) } td { (ratio(option.compression_ratio)) }
                    td { (ratio(option.reduction_ratio)) }
                }
            }
        }
    }
}

fn layouts(scope: &Scope, block_bytes: u32, dedup: Dedup) -> Markup {
    let compressions = scope.compressions();
    let plain = scope.option(block_bytes, "off", Dedup::Off);
    let reduced = compressions.iter().filter_map(|name| scope.option(block_bytes, name, dedup));
    let columns: Vec<_> = plain.into_iter().chain(reduced).collect();
    let Some(first) = columns.first() else { return html! {} };
    html! {
        table {
            tr { th { "Layout" } @for option in &columns { th { (column_name(option)) } } }
            @for (row, laid) in first.layouts.iter().enumerate() {
                tr {
                    td { (laid.layout) }
                    @for laid in columns.iter().filter_map(|option| option.layouts.get(row)) {
                        td { (size(laid.raw_bytes)) " (" (ratio(laid.efficiency)) ")" }
                    }
                }
            }
        }
    }
}

fn each_set(sets: &[Scope], block_bytes: u32) -> Markup {
    let Some(compressions) = sets.first().map(Scope::compressions) else { return html! {} };
    html! {
        table {
            tr {
                th { "Set" } th { "Size" } th { "Dedup ratio" }
                @for name in compressions.iter().skip(1) { th { "Reduction with " (name) } }
            }
            @for set in sets {
                tr {
                    td { (set.name) } td { (size(set.logical_bytes)) }
                    @if let Some(option) = set.option(block_bytes, "off", Dedup::Within) {
                        td { (ratio(option.dedup_ratio)) }
                    }
                    @for name in compressions.iter().skip(1) {
                        @if let Some(option) = set.option(block_bytes, name, Dedup::Within) {
                            td { (ratio(option.reduction_ratio)) }
                        }
                    }
                }
            }
        }
    }
}

/// What a column of layouts is of.
fn column_name(option: &Reduced) -> String {
    match (option.dedup, option.compression.as_str()) {
        (Dedup::Off, "off") => "No reduction".to_owned(),
        (Dedup::Off, codec) => codec.to_owned(),
        (_, "off") => "Dedup".to_owned(),
        (_, codec) => format!("Dedup and {codec}"),
    }
}

fn dedup_name(dedup: Dedup) -> &'static str {
    match dedup {
        Dedup::Off => "off",
        Dedup::Within => "within each set",
        Dedup::Across => "across sets",
    }
}

fn range(option: &Reduced) -> String {
    if option.stored_bytes.is_exact() {
        return String::new();
    }
    format!("{} to {}", size(option.stored_bytes.least), size(option.stored_bytes.most))
}

fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}:1")
}

/// The largest unit that a size has one of at least.
fn unit(bytes: u64) -> (f64, &'static str) {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = units.into_iter().find(|(unit, _)| bytes >= *unit);
    fits.map_or((1.0, "B"), |(unit, name)| (unit as f64, name))
}

fn size(bytes: u64) -> String {
    match unit(bytes) {
        (_, "B") => format!("{bytes} B"),
        (unit, name) => format!("{:.1} {name}", bytes as f64 / unit),
    }
}
