//! Parity and copies, compared with the data; and what can be read from them alone.

use super::Walk;
use crate::{format::RowHeader, segment::io::RowAt};
use quoin_base::{ByteRange, SegmentId};
use quoin_stripe::StripeSet;

impl Walk<'_> {
    /// Whether the columns of a row agree. Those that are missing, or on drives that are not there, are left out.
    pub(super) async fn redundancy(&mut self, id: SegmentId, row: ByteRange, what: &str) {
        let io = &self.opened.io;
        let Some(set) = io.segments.stripes(id).filter(|set| set.geometry.parity > 0) else { return };
        // A row begins and ends with a stripe, and what one of its heads names need not.
        let stripe = set.geometry.stripe_bytes();
        let stripes = row.offset / stripe * stripe..row.end().next_multiple_of(stripe);
        let in_columns = set.geometry.column_range(stripes.into(), 0);
        match io.store.columns().verify(&set, in_columns).await {
            Ok(true) => {}
            Ok(false) if set.geometry.data == 1 => {
                self.report.add_repairable(what, "a copy of it differs from the others");
            }
            Ok(false) => {
                self.report.add_repairable(what, "its parity does not agree with its data");
            }
            Err(error) => {
                let drives = names(&set, |drive| io.store.drive_name(drive).to_owned());
                let problem = format!("it cannot be read from all of the drives {drives} ({error})");
                self.report.add_repairable(what, &problem);
            }
        }
    }

    /// The head of a row, if it can be read from other columns than its own.
    pub(super) async fn head_elsewhere(&mut self, at: RowAt, what: &str) -> Option<Box<RowHeader>> {
        let head = self.opened.io.row_head_otherwise(at).await?;
        self.report.add_repairable(what, "its head does not verify and follows from other drives");
        Some(head)
    }
}

fn names(set: &StripeSet, name: impl Fn(quoin_base::DriveIndex) -> String) -> String {
    set.columns.iter().map(|column| name(column.drive)).collect::<Vec<_>>().join(", ")
}
