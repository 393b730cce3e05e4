//! Putting together what destage writes. Nothing gets a new checksum before it was verified against the one it has: what
//! hosts wrote against that of its receipt, what lies below against that of the block table.

use crate::{
    buffer::{BlockKey, Content, Fragment, received::Received},
    bugs::{Bug, planted},
    error::PoolError,
    fork::layer::Layer,
    host::{
        contents::Verified,
        read::{covered, is_zero},
    },
    lifecycle::slice::Slice,
    segment::packed::Whole,
};
use quoin_base::{SECTOR_BYTES, crc32c};
use quoin_world::Buf;

/// A block of so many sectors that one write brought whole and that is as it was received. `Some(None)`: it is all zeroes.
pub(super) fn whole(received: &Received, sectors: u16) -> Option<Option<Whole>> {
    if planted(Bug::BlessFlippedBits) || !received.verifies() {
        return None;
    }
    let data = received.sectors(0, sectors);
    let crc = received.crc_of(data.len()).unwrap_or_else(|| crc32c(&data).0);
    Some(Some(Whole { data, crc }).filter(|whole| !is_zero(&whole.data)))
}

impl Slice {
    /// A block's whole content: buffered fragments over what lies below. `None`: it is all zeroes.
    pub(crate) async fn compose(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragments: &[Fragment],
    ) -> Result<Option<Whole>, PoolError> {
        let sectors = self.buffer.sectors_per_block();
        let whole = match fragments {
            [fragment] if fragment.sectors == sectors => {
                match self.verified_data(layer, key, fragment).await? {
                    Some(Verified { data, crc }) => {
                        let crc = crc.unwrap_or_else(|| crc32c(&data).0);
                        Whole { data, crc }
                    }
                    None => return Ok(None),
                }
            }
            _ => self.merge(layer, key, fragments).await?,
        };
        Ok(Some(whole).filter(|whole| !is_zero(&whole.data)))
    }

    async fn merge(&self, layer: &Layer, key: BlockKey, fragments: &[Fragment]) -> Result<Whole, PoolError> {
        let sectors = self.buffer.sectors_per_block();
        let bytes = |sectors: u16| usize::from(sectors) * SECTOR_BYTES as usize;
        let is_whole = covered(fragments, 0, sectors) == sectors;
        let base =
            if is_whole || planted(Bug::ZeroFill) { None } else { self.read_base(layer, key.index).await? };
        let mut buf = match &base {
            Some(base) => Buf::copy_of(&base.data),
            None => Buf::zeroed(bytes(sectors)),
        };
        for fragment in fragments {
            let target = &mut buf.as_mut_slice()[bytes(fragment.start)..][..bytes(fragment.sectors)];
            match self.verified_data(layer, key, fragment).await? {
                Some(Verified { data, .. }) => target.copy_from_slice(&data),
                None => target.fill(0),
            }
        }
        let data = buf.into_slice();
        let crc = crc32c(&data).0;
        Ok(Whole { data, crc })
    }

    /// A fragment's data as it was received; `None` for zeroes.
    pub(super) async fn verified_data(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragment: &Fragment,
    ) -> Result<Option<Verified>, PoolError> {
        let verified = match &fragment.content {
            Content::Zero => return Ok(None),
            Content::Ram(received) => {
                let data = received.sectors(fragment.start, fragment.sectors);
                let is_blessed = planted(Bug::BlessFlippedBits);
                if received.verifies() || is_blessed {
                    let crc = received.crc_of(data.len()).filter(|_| !is_blessed);
                    return Ok(Some(Verified { data, crc }));
                }
                self.read_again(layer, key, fragment, received).await?
            }
            Content::Journal(source) => self.journal_data(layer, key, fragment, source).await?,
            Content::Placed(block) => self.placed_data(layer, key, fragment, block).await?,
            Content::Shared(source) => {
                let data = self.shared_data(layer, key, fragment, *source).await?;
                return Ok(data.map(|data| Verified { data, crc: None }));
            }
        };
        Ok(Some(verified))
    }

    /// What the journal has of data that is not any more what was received.
    async fn read_again(
        &self,
        layer: &Layer,
        key: BlockKey,
        fragment: &Fragment,
        received: &Received,
    ) -> Result<Verified, PoolError> {
        self.counters.damage.ram_faults.add(1);
        let (volume, block) = (layer.volume.id, key.index);
        tracing::error!(%volume, %block, "a buffered block changed in RAM; it is read from the journal again");
        let source = received.in_journal(key, &fragment.batch, self.buffer.sectors_per_block());
        let source = source.ok_or_else(|| PoolError::Medium {
            volume,
            offset: block.offset_bytes(self.buffer.block_bytes),
            reason: "it changed in RAM before it was destaged, and the journal does not have it".into(),
            unread: false,
        })?;
        self.journal_data(layer, key, fragment, &source).await
    }
}
