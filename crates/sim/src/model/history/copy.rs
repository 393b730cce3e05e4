//! Range copies: a sector gets what another volume has at the same address.

use super::{History, OpId, Sector};
use crate::stamp::Value;

impl History {
    /// A range of a volume begins to get what the same range of another holds, which nobody changes. `None` if that is
    /// not certain.
    pub(crate) fn begin_copy(
        &mut self,
        source: u32,
        target: u32,
        window: usize,
        first: u32,
        sectors: u32,
    ) -> Option<Vec<OpId>> {
        let copied = &self.volumes.get(&source)?.windows[window].1[first as usize..][..sectors as usize];
        let value =
            |sector: &Sector| sector.entries.is_empty().then(|| self.ops[sector.settled as usize].value);
        let values: Vec<Value> = copied.iter().map(value).collect::<Option<_>>()?;
        let mut at = first;
        let mut ids = Vec::new();
        for run in values.chunk_by(|a, b| a == b) {
            ids.push(self.begin_with(target, window, at, run.len() as u32, run[0]));
            at += run.len() as u32;
        }
        Some(ids)
    }
}
