//! `quoin volume unreadable`: which ranges of which volumes cannot be read.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::table,
    size_text,
    time::duration_text,
};
use clap::Args;
use quoin_api::{UnreadableCause, UnreadableRange, UnreadableRanges, Volume};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

pub(crate) const EXAMPLES: &str = "While more drives are away than the layout tolerates, reads of what only they hold fail \
                                   with a medium error, and everything else serves. When the drives are back, so is \
                                   what they hold. A damaged range can be read again when it is overwritten or \
                                   unmapped.\n\nThe volumes' maps are walked beside hosts, and each range is as it was at \
                                   some moment of the walk. What happens to be in the read cache can be read all the \
                                   same.\n\nExamples:\n  \
                                   quoin --data /srv/a volume unreadable\n  \
                                   quoin --data /srv/a volume unreadable v1 v1.before-upgrade --limit 20\n  \
                                   quoin --data /srv/a volume unreadable -o json | jq '.[] | {volume, away_bytes}'";

/// How long a walk takes before it is said how far it is, and how often that is said.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Options of `quoin volume unreadable`.
#[derive(Args, Debug)]
pub struct UnreadableArgs {
    /// Volumes, snapshots or clones [default: all]
    #[arg(id = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Show at most this many ranges of each volume; the totals count all
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
}

/// What of a volume cannot be read.
#[derive(Default, Serialize)]
struct Listed {
    volume: String,
    /// Bytes that can be read again when drives are back.
    away_bytes: u64,
    damaged_bytes: u64,
    /// Drives that are away and hold something of it.
    drives: BTreeSet<String>,
    ranges: Vec<UnreadableRange>,
    /// Ranges that are not listed.
    more_ranges: u64,
}

impl Listed {
    fn add(&mut self, range: UnreadableRange, limit: usize) {
        match range.cause {
            UnreadableCause::Away => self.away_bytes += range.length_bytes,
            UnreadableCause::Damaged => self.damaged_bytes += range.length_bytes,
        }
        let goes_on = |last: &&mut UnreadableRange| {
            last.offset_bytes + last.length_bytes == range.offset_bytes
                && (last.cause, &last.reason) == (range.cause, &range.reason)
        };
        let has_room = self.ranges.len() < limit;
        match self.ranges.last_mut().filter(goes_on) {
            // A part of the volume ended between the two.
            Some(last) if self.more_ranges == 0 => last.length_bytes += range.length_bytes,
            _ if has_room => self.ranges.push(range),
            _ => self.more_ranges += 1,
        }
    }
}

/// How far the walk is, for people at a terminal.
struct Walk {
    began: Instant,
    told: Instant,
    total_bytes: u64,
    /// Bytes of the volumes that are done.
    done_bytes: u64,
    is_told: bool,
}

impl Walk {
    fn tell(&mut self, at_bytes: u64) {
        if !self.is_told || self.told.elapsed() < TELL_EVERY {
            return;
        }
        self.told = Instant::now();
        let (done, total) = ((self.done_bytes + at_bytes) as f64, self.total_bytes.max(1) as f64);
        let left_s = self.began.elapsed().as_secs_f64() * (total - done).max(0.0) / done.max(1.0);
        eprintln!("{:.0} % looked at, about {} left", 100.0 * done / total, duration_text(left_s as u64));
    }
}

pub(crate) fn unreadable(client: &Client, output: &Output, args: UnreadableArgs) -> Result<(), Failure> {
    let volumes: Vec<Volume> = match &args.names[..] {
        [] => client.get("/volumes")?,
        names => names
            .iter()
            .map(|name| client.get(&format!("/volumes/{}", segment(name))))
            .collect::<Result<_, _>>()?,
    };
    let now = Instant::now();
    let mut walk = Walk {
        began: now,
        told: now,
        total_bytes: volumes.iter().map(|volume| volume.size_bytes).sum(),
        done_bytes: 0,
        is_told: output.is_for_people() && io::stderr().is_terminal(),
    };
    let (mut listed, mut more_damaged) = (Vec::new(), 0);
    for Volume { name, size_bytes, .. } in volumes {
        let mut found = Listed { volume: name, ..Listed::default() };
        let mut next = Some(0);
        while let Some(from) = next {
            let at = format!("/volumes/{}/unreadable?from_bytes={from}", segment(&found.volume));
            let part: UnreadableRanges = client.get(&at)?;
            part.ranges.into_iter().for_each(|range| found.add(range, args.limit));
            found.drives.extend(part.drives);
            (next, more_damaged) = (part.next_bytes, part.more_damaged);
            walk.tell(next.unwrap_or(size_bytes));
        }
        walk.done_bytes += size_bytes;
        if found.away_bytes + found.damaged_bytes > 0 {
            listed.push(found);
        }
    }
    output.list(&listed, "", |listed| text(listed, more_damaged));
    Ok(())
}

fn text(listed: &[Listed], more_damaged: u64) -> String {
    let more = match more_damaged {
        0 => String::new(),
        more => format!("\n\nand {more} more damaged ranges, which are not listed: quoin scrub status"),
    };
    if listed.is_empty() {
        return format!("everything can be read{more}");
    }
    let size = |bytes| if bytes == 0 { "-".to_owned() } else { size_text(bytes) };
    let total = |of: &Listed| {
        let drives: Vec<_> = of.drives.iter().map(String::as_str).collect();
        let drives = if drives.is_empty() { "-".to_owned() } else { drives.join(", ") };
        vec![of.volume.clone(), size(of.away_bytes), size(of.damaged_bytes), drives]
    };
    let totals = table(
        &["volume", "until drives are back", "damaged", "drives that are away"],
        listed.iter().map(total).collect(),
        "",
    );
    let row = |of: &Listed, range: &UnreadableRange| {
        let cause = match (range.cause, &range.reason) {
            (UnreadableCause::Away, _) => "until drives are back".to_owned(),
            (UnreadableCause::Damaged, Some(reason)) => format!("damaged: {reason}"),
            (UnreadableCause::Damaged, None) => "damaged".to_owned(),
        };
        vec![of.volume.clone(), range.offset_bytes.to_string(), range.length_bytes.to_string(), cause]
    };
    let rows = listed.iter().flat_map(|of| {
        let rest = (of.more_ranges > 0)
            .then(|| vec![of.volume.clone(), format!("and {} more ranges", of.more_ranges)]);
        of.ranges.iter().map(|range| row(of, range)).chain(rest).collect::<Vec<_>>()
    });
    let ranges = table(&["volume", "first byte", "bytes", "cannot be read"], rows.collect(), "");
    format!("{totals}\n\n{ranges}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset_bytes: u64, length_bytes: u64, cause: UnreadableCause) -> UnreadableRange {
        UnreadableRange { offset_bytes, length_bytes, cause, reason: None }
    }

    #[test]
    fn ranges_are_joined_over_parts_and_totals_count_what_is_not_listed() {
        let mut listed = Listed { volume: "v1".into(), ..Listed::default() };
        let (away, damaged) = (UnreadableCause::Away, UnreadableCause::Damaged);
        for found in [range(0, 8, away), range(8, 8, away), range(16, 8, damaged), range(32, 8, away)] {
            listed.add(found, 2);
        }
        assert_eq!(listed.ranges, [range(0, 16, away), range(16, 8, damaged)]);
        assert_eq!((listed.away_bytes, listed.damaged_bytes, listed.more_ranges), (24, 8, 1));
        let text = text(&[listed], 3);
        assert_eq!(
            text,
            "VOLUME  UNTIL DRIVES ARE BACK  DAMAGED  DRIVES THAT ARE AWAY\n\
             v1      24 B                   8 B      -\n\n\
             VOLUME  FIRST BYTE         BYTES  CANNOT BE READ\n\
             v1      0                  16     until drives are back\n\
             v1      16                 8      damaged\n\
             v1      and 1 more ranges\n\n\
             and 3 more damaged ranges, which are not listed: quoin scrub status"
        );
    }
}
