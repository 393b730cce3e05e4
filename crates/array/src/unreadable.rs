//! What of volumes cannot be read now: for clients that ask, and in an event that names the volumes after drives were lost.
//!
//! Both go through the maps of volumes in the background. The event is recorded once for each drive that more is lost with,
//! and rests between its steps for as long as they take.

use crate::{Array, ArrayError, told_unreadable::Due};
use quoin_api::{self as api, NextStep, Severity, UnreadableCause};
use quoin_base::ByteRange;
use quoin_drive::MemberState;
use quoin_pool::{Pool, PoolError};
use quoin_volume::BlockDevice;
use quoin_world::Thread;
use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

/// The most volumes that an event names.
const MOST_NAMED: usize = 10;

impl Array {
    /// What of a part of a volume, snapshot or clone cannot be read now, from a byte on: as far as one look goes, which is
    /// 1 GiB of what is mapped at most.
    ///
    /// # Errors
    /// As [`Array::volume`] if it does not exist. `Offline` or `Pool` while the pool is not open.
    pub async fn unreadable_ranges(
        &self,
        name: &str,
        from: api::UnreadableFrom,
    ) -> Result<api::UnreadableRanges, ArrayError> {
        let (volume, pool) = (self.volume(name)?, self.pool()?);
        let size = volume.size_bytes();
        let from = from.from_bytes.min(size);
        let away = pool.ranges_away(volume.id(), from).await?;
        let next = away.next.filter(|next| *next < size);
        let looked_at = ByteRange::from(from..next.unwrap_or(size).max(from));
        let (damaged, more_damaged) = self.damage_of(&pool, volume.id());
        let damaged: Vec<_> = damaged
            .into_iter()
            .filter_map(|(range, reason)| Some((both(range, looked_at)?, reason)))
            .collect();
        let away_ranges = away.ranges.iter().filter_map(|range| both(*range, looked_at));
        let away_ranges =
            away_ranges.flat_map(|range| without(range, &damaged)).map(|range| api::UnreadableRange {
                offset_bytes: range.offset,
                length_bytes: range.len,
                cause: UnreadableCause::Away,
                reason: None,
            });
        let mut ranges: Vec<_> = away_ranges.collect();
        ranges.extend(damaged.iter().map(|(range, reason)| api::UnreadableRange {
            offset_bytes: range.offset,
            length_bytes: range.len,
            cause: UnreadableCause::Damaged,
            reason: Some(reason.clone()),
        }));
        ranges.sort_unstable_by_key(|range| range.offset_bytes);
        Ok(api::UnreadableRanges {
            volume: volume.name(),
            size_bytes: size,
            ranges,
            drives: away.drives.iter().map(|drive| self.drive_path(*drive)).collect(),
            more_damaged,
            next_bytes: next,
        })
    }

    /// Names the volumes that cannot be read once more of them cannot, and tells when all can be again.
    pub(crate) fn tend_unreadable(self: &Arc<Self>, pool: &Arc<Pool>) {
        let members = pool.members();
        let is_away = members.all.iter().filter(|member| member.state == MemberState::Absent);
        let away: BTreeSet<_> = is_away.map(|member| member.index).collect();
        let is_any = !away.is_empty() && pool.protection().unreadable_segments > 0;
        let due = self.absences().unreadable.due(&away, is_any);
        match due {
            Due::Nothing => {}
            Due::TellAll => {
                let text = "what could not be read while drives were away can be read again";
                self.log().record(Severity::Notice, self.pool_name(), text);
            }
            Due::Look => {
                let (array, pool) = (self.clone(), Arc::downgrade(pool));
                let task = async move {
                    let found = array.look_for_unreadable(&pool).await;
                    let is_any = found.as_ref().map(|found| !found.is_empty());
                    if let Some(found) = found.filter(|found| !found.is_empty()) {
                        array.log().record(Severity::Error, array.pool_name(), names(found));
                    }
                    array.absences().unreadable.looked(is_any);
                };
                self.world().spawn(Thread::Background, Box::pin(task));
            }
        }
    }

    /// The volumes of which something cannot be read until drives are back, with how many bytes. `None`: the pool went away.
    async fn look_for_unreadable(&self, pool: &Weak<Pool>) -> Option<Vec<(String, u64)>> {
        let mut found = Vec::new();
        let deleted = self.volumes().binned();
        for volume in self.volumes().list().into_iter().chain(deleted) {
            let (mut from, mut bytes) = (0, 0);
            loop {
                let began = self.world().now();
                // NOTE: not held while this rests, since closing the pool waits until all handles on it are dropped.
                let open = pool.upgrade()?;
                let away = match open.ranges_away(volume.id(), from).await {
                    Ok(away) => away,
                    Err(PoolError::NoSuchVolume(_)) => break,
                    Err(error) => {
                        tracing::debug!(%error, "what cannot be read is looked for again later");
                        return None;
                    }
                };
                drop(open);
                let all = ByteRange::new(0, volume.size_bytes());
                bytes += away
                    .ranges
                    .iter()
                    .filter_map(|range| both(*range, all))
                    .map(|range| range.len)
                    .sum::<u64>();
                match away.next.filter(|next| *next < all.len) {
                    Some(next) => from = next,
                    None => break,
                }
                self.world().sleep(self.world().now().since(began)).await;
            }
            if bytes > 0 {
                let deleted = if volume.deleted().is_some() { " (deleted)" } else { "" };
                found.push((format!("{}{deleted}", volume.name()), bytes));
            }
        }
        Some(found)
    }
}

/// The text of the event that names volumes.
fn names(mut found: Vec<(String, u64)>) -> String {
    found.sort_unstable_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then(a.cmp(b)));
    let named: Vec<_> =
        found.iter().take(MOST_NAMED).map(|(name, bytes)| format!("{bytes} bytes of {name}")).collect();
    let more = match found.get(MOST_NAMED..) {
        Some(more @ [_, ..]) => {
            let bytes: u64 = more.iter().map(|(_, bytes)| bytes).sum();
            format!(" and {bytes} bytes of {} more volumes", more.len())
        }
        _ => String::new(),
    };
    format!(
        "until drives are back, these cannot be read: {}{more}; hosts get medium errors there; {}",
        named.join(", "),
        NextStep::ListUnreadable
    )
}

/// What lies in both ranges, if anything.
fn both(range: ByteRange, other: ByteRange) -> Option<ByteRange> {
    let (start, end) = (range.offset.max(other.offset), range.end().min(other.end()));
    (start < end).then(|| ByteRange::from(start..end))
}

/// A range without what is damaged of it. What is damaged comes in ascending order.
fn without(range: ByteRange, damaged: &[(ByteRange, String)]) -> Vec<ByteRange> {
    let (mut left, mut start) = (Vec::new(), range.offset);
    for cut in damaged.iter().filter_map(|(cut, _)| both(range, *cut)) {
        left.extend((start < cut.offset).then(|| ByteRange::from(start..cut.offset)));
        start = start.max(cut.end());
    }
    left.extend((start < range.end()).then(|| ByteRange::from(start..range.end())));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_the_most_affected_volumes() {
        assert_eq!(
            names(vec![("v1".into(), 8192), ("v2".into(), 65_536)]),
            "until drives are back, these cannot be read: 65536 bytes of v2, 8192 bytes of v1; hosts get medium errors \
             there; list the ranges: quoin volume unreadable"
        );
        let many = (0..MOST_NAMED as u64 + 2).map(|n| (format!("v{n}"), 100 - n)).collect();
        let text = names(many);
        assert!(text.contains("91 bytes of v9 and 179 bytes of 2 more volumes; "), "{text}");
    }

    #[test]
    fn what_is_damaged_is_not_said_to_come_back() {
        let damaged = |ranges: &[(u64, u64)]| -> Vec<_> {
            ranges.iter().map(|(at, len)| (ByteRange::new(*at, *len), String::new())).collect()
        };
        let range = ByteRange::new(100, 100);
        let left = |ranges: &[(u64, u64)]| -> Vec<(u64, u64)> {
            without(range, &damaged(ranges)).iter().map(|range| (range.offset, range.len)).collect()
        };
        assert_eq!(left(&[]), [(100, 100)]);
        assert_eq!(left(&[(0, 100), (200, 10)]), [(100, 100)]);
        assert_eq!(left(&[(90, 20), (150, 10), (190, 50)]), [(110, 40), (160, 30)]);
        assert_eq!(left(&[(0, 1000)]), []);
    }
}
