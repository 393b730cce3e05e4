//! Range copies: sectors get what others have.

use super::{History, OpId, Sector};
use crate::stamp::Value;

/// Where some sectors of a volume begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The volume.
    pub volume: u32,
    /// Which of its windows.
    pub window: usize,
    /// The first sector within the window.
    pub first: u32,
}

impl History {
    /// So many sectors begin to get what those at another place hold, which nobody changes. `None` if that is not
    /// certain.
    pub fn begin_copy(&mut self, from: Place, to: Place, sectors: u32) -> Option<Vec<OpId>> {
        let (source, copied) = &self.volumes.get(&from.volume)?.windows[from.window];
        let copied = &copied[from.first as usize..][..sectors as usize];
        let target = self.volumes.get(&to.volume)?.windows[to.window].0;
        let moved =
            (target.first + u64::from(to.first)) as i64 - (source.first + u64::from(from.first)) as i64;
        let value = |sector: &Sector| {
            let settled = self.ops[sector.settled as usize].value;
            sector.entries.is_empty().then(|| settled.moved_by(moved))
        };
        let values: Vec<Value> = copied.iter().map(value).collect::<Option<_>>()?;
        let mut at = to.first;
        let mut ids = Vec::new();
        for run in values.chunk_by(|a, b| a == b) {
            ids.push(self.begin_with(to.volume, to.window, at, run.len() as u32, run[0]));
            at += run.len() as u32;
        }
        Some(ids)
    }
}
