//! Logical block provisioning (SBC-3 §4.7): WRITE SAME, UNMAP and GET LBA STATUS.

use crate::{
    command::Extent,
    data_out::{concat, total},
    fields::{u32_at, u64_at},
    geometry::Geometry,
    limits,
    reply::Reply,
    sense::Sense,
};
use quoin_base::{ByteRange, MIB};
use quoin_volume::{BlockDevice, Provisioning};
use quoin_world::{Buf, Slice};

/// Most descriptors in one answer to GET LBA STATUS; further ones are asked for from the last one's end.
const MAX_LBA_STATUS_DESCRIPTORS: usize = 1024;
const _: () = assert!(8 + 16 * MAX_LBA_STATUS_DESCRIPTORS <= limits::RETURNED_PARAMETER_BYTES as usize);

pub(crate) async fn write_same<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    extent: Extent,
    no_data: bool,
    data: &[Slice],
) -> Result<Reply, Sense> {
    let range = geometry.range_to_fill(extent)?;
    let block = geometry.block_bytes as usize;
    let wanted_bytes = if no_data { 0 } else { block as u64 };
    let pattern = concat(data);
    if !no_data && pattern.len() < block {
        return Err(Sense::INCORRECT_AMOUNT_OF_DATA);
    }
    // Zeroes are not stored: a range of them is unmapped.
    if range.is_empty() {
        return Ok(Reply { wanted_bytes, ..Reply::good() });
    }
    if pattern.iter().all(|&byte| byte == 0) {
        device.unmap(range).await.map_err(geometry.sense_of())?;
    } else {
        let mut repeated = Buf::zeroed(range.len.min(MIB) as usize);
        repeated.as_mut_slice().chunks_mut(block).for_each(|chunk| chunk.copy_from_slice(&pattern[..block]));
        let repeated = repeated.into_slice();
        // Cut at multiples of the block from the start, so that every piece starts with the pattern.
        for at in (0..range.len).step_by(MIB as usize) {
            let piece = repeated.slice(..(range.len - at).min(MIB) as usize);
            device.write(range.offset + at, vec![piece]).await.map_err(geometry.sense_of())?;
        }
    }
    Ok(Reply { wanted_bytes, ..Reply::good() })
}

/// The ranges an UNMAP parameter list names (SBC-3 §5.28).
fn unmap_ranges(geometry: Geometry, list: &[u8]) -> Result<Vec<ByteRange>, Sense> {
    // The header: of its two lengths the one of the descriptors counts.
    let Some(length) = list.get(2..4) else { return Err(Sense::PARAMETER_LIST_LENGTH_ERROR) };
    if list.len() < 8 {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    let descriptors = usize::from(u16::from_be_bytes([length[0], length[1]])).min(list.len() - 8) / 16;
    if descriptors > limits::UNMAP_DESCRIPTORS as usize {
        return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
    }
    // Each descriptor is an LBA of 8 bytes and a count of blocks of 4; the last 4 are reserved.
    let ranges = list[8..].chunks_exact(16).take(descriptors).map(|descriptor| {
        geometry.range(Extent { lba: u64_at(descriptor, 0), blocks: u32_at(descriptor, 8) })
    });
    let ranges: Vec<_> = ranges.collect::<Result<_, _>>()?;
    if ranges.iter().map(|range| range.len).sum::<u64>() > limits::UNMAP_BYTES {
        return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
    }
    Ok(ranges)
}

pub(crate) async fn unmap<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    parameter_bytes: u32,
    data: &[Slice],
) -> Result<Reply, Sense> {
    if parameter_bytes > 0 {
        if total(data) < parameter_bytes.into() {
            return Err(Sense::INCORRECT_AMOUNT_OF_DATA);
        }
        // All are checked before the first is unmapped.
        for range in unmap_ranges(geometry, &concat(data))? {
            if !range.is_empty() {
                device.unmap(range).await.map_err(geometry.sense_of())?;
            }
        }
    }
    Ok(Reply { wanted_bytes: parameter_bytes.into(), ..Reply::good() })
}

/// GET LBA STATUS data (SBC-3 §5.4): what is mapped and what is not from `lba` on, as far as it fits.
pub(crate) async fn lba_status<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    lba: u64,
    allocation: u32,
) -> Result<Reply, Sense> {
    const MAPPED: u8 = 0;
    const DEALLOCATED: u8 = 1;
    const ANCHORED: u8 = 2;
    let unmapped = match geometry.provisioning {
        Provisioning::Thin => DEALLOCATED,
        Provisioning::Resource => ANCHORED,
    };
    if lba >= geometry.blocks() {
        return Err(Sense::LBA_OUT_OF_RANGE);
    }
    let block = u64::from(geometry.block_bytes);
    // As many descriptors as the allocation length takes, but at least one and not too many.
    let room = (allocation.saturating_sub(8) as usize / 16).clamp(1, MAX_LBA_STATUS_DESCRIPTORS);
    let range = ByteRange::new(lba * block, (geometry.blocks() - lba) * block);
    let extents = device.allocation(range, room).await.map_err(geometry.sense_of())?;
    let mut descriptors = Vec::new();
    for extent in extents {
        // A descriptor's count has 32 bits.
        for piece in extent.range.split(u64::from(u32::MAX) * block) {
            let blocks = u32::try_from(piece.len / block).unwrap_or(u32::MAX);
            descriptors.extend_from_slice(&(piece.offset / block).to_be_bytes());
            descriptors.extend_from_slice(&blocks.to_be_bytes());
            let status = if extent.mapped { MAPPED } else { unmapped };
            descriptors.extend_from_slice(&[status, 0, 0, 0]);
        }
    }
    descriptors.truncate(room * 16);
    // The length counts what follows it: 4 reserved bytes and the descriptors.
    let len = descriptors.len() as u32 + 4;
    let data = [&len.to_be_bytes()[..], &[0; 4], &descriptors].concat();
    Ok(Reply::parameters(data, allocation))
}
