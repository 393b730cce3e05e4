//! What is told of a sector that is not as it may be.

use super::{History, NEVER};
use quoin_base::{ByteRange, SECTOR_BYTES};
use std::fmt::Write as _;

/// Operations told of an offending sector.
const TOLD: usize = 24;

impl History {
    /// What is known about a sector: its entries and its last operations.
    pub(super) fn story(&mut self, volume: u32, window: usize, at: u32, begun: u32, problem: &str) -> String {
        let base = self.windows(volume)[window].first;
        let byte = ByteRange::new((base + u64::from(at)) * SECTOR_BYTES, SECTOR_BYTES).offset;
        let mut out = format!(
            "volume {volume}, byte {byte} (window {window}, sector {at}), read begun at {begun}: {problem}\n"
        );
        for entry in &self.sector(volume, window, at).entries {
            let _ = writeln!(out, "  entry {entry:?}");
        }
        let ops = self.ops.iter().enumerate().filter(|(_, op)| {
            op.volume == volume && op.window == window && (op.first..op.first + op.sectors).contains(&at)
        });
        let told: Vec<_> = ops.collect();
        for (id, op) in told.iter().skip(told.len().saturating_sub(TOLD)) {
            let ended = if op.ended == NEVER { "…".to_owned() } else { op.ended.to_string() };
            let _ = writeln!(
                out,
                "  boot {} #{id} {} sectors {}+{} from {} to {ended} {:?}",
                op.boot,
                if op.value.is_zeroes() { "zero " } else { "write" },
                op.first,
                op.sectors,
                op.begun,
                op.end
            );
        }
        out
    }
}
