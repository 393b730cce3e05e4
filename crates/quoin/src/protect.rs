//! How `quoin init` protects data: which layout it takes, and what that costs beside others.

use crate::domains::{InDomain, shared_disk};
use quoin_base::Layout;
use quoin_cli::{Failure, size_text};
use quoin_pool::{FormatOptions, NewDrive};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most drives that each extent of the journal is written to.
const MOST_JOURNAL_COLUMNS: u8 = quoin_drive::MOST_JOURNAL_COLUMNS;
/// Layouts that are compared with the one chosen.
const COMPARED: [&str; 6] = ["none", "mirror", "2+1", "raid5", "mirror-3", "raid6"];

/// A layout, and what it costs on the drives given.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LayoutReport {
    layout: String,
    /// Failures that it tolerates.
    tolerates: u8,
    /// So much of the drives' space holds data.
    data_percent: u8,
    /// About so much: a part of it is for metadata and the reserve.
    data_bytes: u64,
}

/// How the new pool is protected.
#[derive(Debug, Serialize)]
pub(crate) struct Protected {
    #[serde(flatten)]
    chosen: LayoutReport,
    /// Drives that each write of the journal goes to.
    journal_columns: u8,
    /// Fault domains, and the drives in each.
    domains: BTreeMap<String, Vec<String>>,
    /// Each drive file counts as a fault domain of its own.
    each_file: bool,
    /// A disk that several fault domains are on: nothing protects against its loss.
    shared_disk: Option<String>,
    /// All are on that disk.
    #[serde(skip)]
    is_only_disk: bool,
    /// Other layouts that these drives allow.
    others: Vec<LayoutReport>,
    /// Fault domains for whose loss space is kept free.
    spare_domains: u8,
    /// Of the data that there is room for, so much is kept free for that, or would be with one domain.
    spare_bytes: Option<u64>,
}

/// The layout that protects by default: two copies where there are two fault domains. Nothing else has the latency of
/// small writes that hosts expect of an array, and it is what an administrator expects who said nothing.
fn usual(domains: usize) -> Layout {
    if domains > 1 { Layout::mirror(1) } else { Layout::NONE }
}

/// The fault domains of drives with such roles.
fn domain_count(drives: &[NewDrive], wanted: impl Fn(&NewDrive) -> bool) -> usize {
    drives.iter().filter(|drive| wanted(drive)).map(|drive| &drive.domain).collect::<BTreeSet<_>>().len()
}

/// Sets the layout, and the journal's columns to tolerate as many failures, or more if so many are asked for.
pub(crate) fn choose(
    options: &mut FormatOptions,
    drives: &[NewDrive],
    wanted: Option<Layout>,
    journal_copies: Option<u8>,
) {
    options.layout = wanted.unwrap_or_else(|| usual(domain_count(drives, |drive| drive.roles.data)));
    let least = (options.layout.parity() + 1).min(MOST_JOURNAL_COLUMNS);
    options.journal_columns = journal_copies.unwrap_or(least).max(least);
}

fn report(options: &FormatOptions, drives: &[NewDrive], layout: Layout) -> Option<LayoutReport> {
    let enough = usize::from(layout.columns()) <= domain_count(drives, |drive| drive.roles.data);
    let journal = layout.parity() < MOST_JOURNAL_COLUMNS
        && usize::from(layout.parity()) < domain_count(drives, |drive| drive.roles.journal);
    let options = FormatOptions { layout, journal_columns: layout.parity() + 1, ..options.clone() };
    let data_bytes = options.data_bytes(drives).ok().filter(|_| enough && journal)?;
    Some(LayoutReport {
        layout: layout.to_string(),
        tolerates: layout.parity(),
        data_percent: (100 * u16::from(layout.data()) / u16::from(layout.columns())) as u8,
        data_bytes,
    })
}

impl Protected {
    /// # Errors
    /// If as many fault domains cannot be kept spare.
    pub(crate) fn of(
        options: &FormatOptions,
        drives: &[NewDrive],
        in_domains: &[InDomain],
        spare_domains: u8,
    ) -> Result<Self, Failure> {
        let spare_bytes = match options.spare_bytes(drives, spare_domains.max(1)) {
            Ok(bytes) => Some(bytes),
            Err(_) if spare_domains == 0 => None,
            Err(error) => {
                let next = "give drives in more fault domains, or leave --spare out";
                return Err(Failure::usage("array not created", error.to_string(), next));
            }
        };
        let chosen = report(options, drives, options.layout).unwrap_or_else(|| LayoutReport {
            layout: options.layout.to_string(),
            tolerates: options.layout.parity(),
            data_percent: 0,
            data_bytes: 0,
        });
        let mut domains = BTreeMap::<String, Vec<String>>::new();
        for (drive, domain) in drives.iter().zip(in_domains) {
            domains.entry(domain.name.clone()).or_default().push(drive.disk.name().to_owned());
        }
        let others =
            COMPARED.iter().filter_map(|name| name.parse().ok()).filter(|other| *other != options.layout);
        let (shared_disk, is_only_disk) = shared_disk(in_domains).unzip();
        Ok(Self {
            spare_domains,
            spare_bytes,
            journal_columns: options.journal_columns,
            each_file: in_domains.iter().any(|domain| domain.name.starts_with("file:")),
            shared_disk,
            is_only_disk: is_only_disk.unwrap_or(false),
            others: others.filter_map(|layout| report(options, drives, layout)).collect(),
            chosen,
            domains,
        })
    }

    /// For people: what is protected, what that costs, and what else there is.
    pub(crate) fn text(&self) -> String {
        let LayoutReport { layout, tolerates, data_percent, data_bytes } = &self.chosen;
        let about = size_text(*data_bytes);
        let mut lines = Vec::new();
        lines.push(match tolerates {
            0 => format!(
                "layout {layout}: nothing is protected, the loss of any drive takes the pool offline; room for about \
                 {about}, reserve and metadata included"
            ),
            count => {
                let plural = if *count == 1 { "" } else { "s" };
                format!(
                    "layout {layout}: tolerates {count} failure{plural}, {data_percent} % of the drives' space holds data; room for \
                     about {about}, reserve and metadata included"
                )
            }
        });
        lines.extend(self.others.iter().map(|other| {
            let held = size_text(other.data_bytes);
            let tolerates = match other.tolerates {
                0 => "protects nothing".to_owned(),
                1 => "tolerates 1 failure".to_owned(),
                count => format!("tolerates {count} failures"),
            };
            format!("  --layout {} {tolerates}, with room for about {held}", other.layout)
        }));
        lines.extend(self.spare_bytes.map(|bytes| {
            let bytes = size_text(bytes);
            match self.spare_domains {
                0 => format!(
                    "spare: off, so that a pool that is nearly full may lack room after a loss; quoin pool set --spare 1 keeps about \
                     {bytes} free for it"
                ),
                1 => format!("spare: about {bytes} of it is kept free for the loss of a fault domain"),
                count => format!("spare: about {bytes} of it is kept free for the loss of {count} fault domains"),
            }
        }));
        lines.push(self.domains_text());
        lines.join("\n")
    }

    fn domains_text(&self) -> String {
        let count = self.domains.len();
        let what = match (self.each_file, count) {
            (true, _) => "each file".to_owned(),
            (false, 1) => {
                let (name, drives) =
                    self.domains.iter().next().map_or(("", 0), |(name, of)| (name, of.len()));
                let why = if drives > 1 && name.starts_with("disk:") {
                    ": all drives are on one disk, and nothing can be protected against its loss; to try layouts with files of \
                     one disk: --domain file"
                } else {
                    ""
                };
                return format!("fault domains: one, {name}{why}");
            }
            (false, count) => {
                let names: Vec<_> = self.domains.keys().map(String::as_str).collect();
                format!("{count}: {}", names.join(", "))
            }
        };
        match &self.shared_disk {
            Some(_) if self.is_only_disk => {
                format!("fault domains: {what} (all on one disk: no protection against its loss)")
            }
            Some(disk) => {
                format!("fault domains: {what} (several on disk {disk}: no protection against its loss)")
            }
            None => format!("fault domains: {what}"),
        }
    }
}
