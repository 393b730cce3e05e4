//! Copies by token (SBC-3 §4.27): a host has parts of a unit kept, gets a token, and has them written elsewhere with it, perhaps
//! from another host.

use crate::{Request, nexus::parameter_list, tokens::Kept};
use quoin_base::ByteRange;
use quoin_scsi::{
    Extent, Geometry, PopulateToken, Reply, Sense, TOKEN_MAX_BYTES, Token, TokenOutcome, WriteUsingToken,
    rod_token_information,
};
use quoin_volume::BlockDevice;
use quoin_world::Slice;
use std::time::Duration;

/// Blocks of a unit, and the token that was made for them.
type Done = (u64, Option<Box<[u8; quoin_scsi::TOKEN_BYTES]>>);

impl<D: BlockDevice> Request<D> {
    /// POPULATE TOKEN.
    pub(crate) async fn populate_token(&self, id: u32, parameter_bytes: u32, data: &[Slice]) -> Reply {
        let done = match parameter_list(parameter_bytes, data).and_then(|list| PopulateToken::parse(&list)) {
            Ok(request) => self.populate(&request).await,
            Err(sense) => Err(sense),
        };
        self.told(id, false, parameter_bytes, done)
    }

    /// WRITE USING TOKEN.
    pub(crate) async fn write_using_token(&self, id: u32, parameter_bytes: u32, data: &[Slice]) -> Reply {
        let done = match parameter_list(parameter_bytes, data).and_then(|list| WriteUsingToken::parse(&list))
        {
            Ok(request) => self.write_from_token(&request).await,
            Err(sense) => Err(sense),
        };
        self.told(id, true, parameter_bytes, done)
    }

    /// RECEIVE ROD TOKEN INFORMATION.
    pub(crate) fn token_information(&self, id: u32, allocation: u32) -> Reply {
        match self.nexus.outcomes.get(id) {
            Some(outcome) => Reply::parameters(rod_token_information(&outcome), allocation),
            None => Reply::check(Sense::INVALID_FIELD_IN_CDB),
        }
    }

    /// Notes what became of it, and answers.
    fn told(&self, id: u32, wrote: bool, parameter_bytes: u32, done: Result<Done, Sense>) -> Reply {
        let failed = done.as_ref().err().copied();
        let (blocks, token) = done.unwrap_or_default();
        self.nexus.outcomes.note(id, TokenOutcome { wrote, blocks, failed, token });
        match failed {
            Some(sense) => Reply::check(sense),
            None => Reply { wanted_bytes: parameter_bytes.into(), ..Reply::good() },
        }
    }

    async fn populate(&self, request: &PopulateToken) -> Result<Done, Sense> {
        let device = &*self.unit.device;
        let (ranges, total) = self.ranges(&request.ranges)?;
        let mut parts = Vec::new();
        for range in ranges {
            let image = device.image(range).await.map_err(|error| self.sense_of(&error))?;
            parts.push((range, image));
        }
        let lives = Duration::from_secs(request.inactivity_s.into());
        let (id, secret) = self.target.tokens().make(Kept { parts }, lives);
        let token = Box::new(Token::bytes(id, secret, device.uuid(), total));
        Ok((total / u64::from(device.block_bytes()), Some(token)))
    }

    async fn write_from_token(&self, request: &WriteUsingToken) -> Result<Done, Sense> {
        let device = &*self.unit.device;
        let block = u64::from(device.block_bytes());
        let (ranges, total) = self.ranges(&request.ranges)?;
        match request.token {
            Token::Zeroes => {
                for range in ranges {
                    device.unmap(range).await.map_err(|error| self.sense_of(&error))?;
                }
            }
            Token::Kept { id, secret } => {
                let kept = self.target.tokens().get(id, secret).ok_or(Sense::TOKEN_UNKNOWN)?;
                let skipped =
                    request.offset_blocks.checked_mul(block).ok_or(Sense::INVALID_FIELD_IN_PARAMETER_LIST)?;
                for (to, (part, from)) in
                    pieces(&kept, skipped, &ranges).ok_or(Sense::COPY_TARGET_DATA_UNDERRUN)?
                {
                    let image = &kept.parts[part].1;
                    device.copy_from(to, image, from).await.map_err(|error| self.sense_of(&error))?;
                }
                if request.deletes {
                    self.target.tokens().delete(id);
                }
            }
        }
        Ok((total / block, None))
    }

    /// Ranges of the unit in bytes, those that are empty left out, and how many bytes they have together.
    fn ranges(&self, extents: &[Extent]) -> Result<(Vec<ByteRange>, u64), Sense> {
        let geometry = Geometry::of(&*self.unit.device);
        let ranges = extents.iter().map(|extent| geometry.range(*extent));
        let ranges: Vec<_> = ranges.collect::<Result<_, _>>()?;
        let total: u64 = ranges.iter().map(|range| range.len).sum();
        if total > TOKEN_MAX_BYTES {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
        Ok((ranges.into_iter().filter(|range| !range.is_empty()).collect(), total))
    }

    fn sense_of(&self, error: &quoin_volume::DeviceError) -> Sense {
        Sense::of_device(error, self.unit.device.block_bytes())
    }
}

/// A range of a part of what a token kept.
type Source = (usize, ByteRange);

/// Which range of which part goes where, so many bytes of what is kept left out; `None` if that is not enough.
fn pieces<I>(kept: &Kept<I>, mut skipped: u64, targets: &[ByteRange]) -> Option<Vec<(u64, Source)>> {
    let mut sources = Vec::new();
    for (part, (range, _)) in kept.parts.iter().enumerate() {
        let skip = skipped.min(range.len);
        skipped -= skip;
        sources.push((part, ByteRange::new(range.offset + skip, range.len - skip)));
    }
    let mut sources = sources.into_iter().filter(|(_, range)| !range.is_empty()).peekable();
    let mut pieces = Vec::new();
    for target in targets {
        let mut done = 0;
        while done < target.len {
            let (part, left) = sources.peek_mut()?;
            let len = left.len.min(target.len - done);
            pieces.push((target.offset + done, (*part, ByteRange::new(left.offset, len))));
            *left = ByteRange::new(left.offset + len, left.len - len);
            done += len;
            sources.next_if(|(_, left)| left.is_empty());
        }
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn pieces_fill_targets_in_order() {
        let range = ByteRange::new;
        let kept = Kept { parts: vec![(range(100, 10), Arc::new(())), (range(500, 20), Arc::new(()))] };
        let found = pieces(&kept, 4, &[range(0, 8), range(50, 10)]).unwrap();
        assert_eq!(found, [(0, (0, range(104, 6))), (6, (1, range(500, 2))), (50, (1, range(502, 10)))]);
        assert_eq!(pieces(&kept, 12, &[range(0, 18)]).unwrap(), [(0, (1, range(502, 18)))]);
        assert_eq!(pieces(&kept, 12, &[range(0, 19)]), None);
        assert_eq!(pieces(&kept, 99, &[range(0, 1)]), None);
    }
}
