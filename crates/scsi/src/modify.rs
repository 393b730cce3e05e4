//! Commands that read blocks and write them back, and let nobody write to them in between.

use crate::{
    command::Extent,
    data_out::{concat, total},
    geometry::Geometry,
    reply::Reply,
    sense::Sense,
};
use quoin_volume::BlockDevice;
use quoin_world::Slice;

/// COMPARE AND WRITE (SBC-3 §5.2): the first half of the data is what must be there, the second what is written then.
pub(crate) async fn compare_and_write<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    extent: Extent,
    data: &[Slice],
) -> Result<Reply, Sense> {
    let range = geometry.range(extent)?;
    let wanted_bytes = 2 * range.len;
    if total(data) < wanted_bytes {
        return Err(Sense::INCORRECT_AMOUNT_OF_DATA);
    }
    let data = concat(data);
    let (expected, new) = data.split_at(range.len as usize);
    let mut differs = None;
    let compare = |bytes: &mut [u8]| {
        differs = bytes.iter().zip(expected).position(|(a, b)| a != b);
        if differs.is_none() {
            bytes.copy_from_slice(&new[..bytes.len()]);
        }
        differs.is_none()
    };
    device.modify(range, compare).await.map_err(geometry.sense_of())?;
    match differs {
        None => Ok(Reply { wanted_bytes, ..Reply::good() }),
        Some(at) => Err(Sense::MISCOMPARE.with_information(at as u64)),
    }
}

/// ORWRITE (SBC-3 §5.11).
pub(crate) async fn or_write<D: BlockDevice>(
    device: &D,
    geometry: Geometry,
    extent: Extent,
    data: &[Slice],
) -> Result<Reply, Sense> {
    let range = geometry.range(extent)?;
    if total(data) < range.len {
        return Err(Sense::INCORRECT_AMOUNT_OF_DATA);
    }
    let mask = concat(data);
    let combine = |bytes: &mut [u8]| {
        bytes.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte |= mask);
        true
    };
    device.modify(range, combine).await.map_err(geometry.sense_of())?;
    Ok(Reply { wanted_bytes: range.len, ..Reply::good() })
}
