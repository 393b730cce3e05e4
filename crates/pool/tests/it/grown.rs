//! A pool that is filled after it grew, and drives much larger than the others: what hosts were told of stays theirs over
//! restarts, and the pool goes on.
//!
//! The pools are small, so the dirty metadata that is allowed for depends on their size.

use crate::rig::{Rig, create, options, pattern, read};
use quoin_base::{ByteRange, DriveIndex, Layout, MIB, VolumeId};
use quoin_pool::{DriveLen, Pool, PoolError, PoolOptions, PoolState};
use quoin_world::Disk;
use quoin_world_sim::SimDisk;
use std::sync::Arc;

const WRITE: u64 = 64 << 10;

fn roomy() -> PoolOptions {
    PoolOptions { dirty_bytes: 16 * MIB, metadata_bytes: 32 * MIB, buffer_bytes: 2 * MIB, ..options() }
}

/// How often each place was written, by which its content is known.
#[derive(Clone, Default)]
struct Written(Vec<u64>);

impl Written {
    async fn write(&mut self, pool: &Pool, volume: VolumeId, at: usize) -> Result<(), PoolError> {
        let tag = self.0.get(at).map_or(0, |rounds| rounds + 1);
        pool.write(volume, at as u64 * WRITE, vec![pattern(tag << 20 | at as u64, WRITE as usize)]).await?;
        match self.0.get_mut(at) {
            Some(rounds) => *rounds = tag,
            None => self.0.push(tag),
        }
        Ok(())
    }

    /// Writes on until the pool is full.
    async fn fill(&mut self, pool: &Pool, volume: VolumeId) {
        loop {
            match self.write(pool, volume, self.0.len()).await {
                Ok(()) => {}
                Err(PoolError::NoSpace) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Writes over all there is, every `step`th place, so that much metadata becomes dirty.
    async fn overwrite(&mut self, pool: &Pool, volume: VolumeId, step: usize) {
        for first in 0..step {
            for at in (first..self.0.len()).step_by(step) {
                self.write(pool, volume, at).await.unwrap();
            }
        }
    }

    /// Gives back the last places.
    async fn trim(&mut self, pool: &Pool, volume: VolumeId, count: usize) {
        self.0.truncate(self.0.len() - count);
        let range = ByteRange::new(self.0.len() as u64 * WRITE, count as u64 * WRITE);
        pool.unmap(volume, range).await.unwrap();
        pool.drain().await.unwrap();
    }

    async fn verify(&self, pool: &Pool, volume: VolumeId) {
        for (at, tag) in self.0.iter().enumerate() {
            let expected = pattern(tag << 20 | at as u64, WRITE as usize).to_vec();
            assert!(read(pool, volume, at as u64 * WRITE, WRITE).await == expected, "{at}");
        }
    }
}

/// Grows all drives to four times their length.
async fn grow(pool: &Pool, disks: &[Arc<SimDisk>]) {
    disks.iter().for_each(|disk| disk.lengthen(4 * disk.len_bytes()));
    let len = |(drive, disk): (u16, &Arc<SimDisk>)| DriveLen {
        drive: DriveIndex(drive),
        len_bytes: disk.len_bytes(),
    };
    let lens: Vec<_> = (0..).zip(disks).map(len).collect();
    pool.grow_drives(&lens).await.1.unwrap();
}

fn rig(seed: u64, text: &str, slices: u8) -> Rig {
    let layout: Layout = text.parse().unwrap();
    match slices {
        1 => Rig::of_drives(seed, layout, usize::from(layout.columns()), 16 * MIB),
        _ => Rig::with_slices(seed, 2, 16 * MIB * u64::from(slices), slices),
    }
}

#[test]
fn a_pool_that_grew_and_was_filled_goes_on_after_restarts() {
    for (seed, text, slices) in [(1, "none", 1), (2, "raid5", 1), (3, "mirror-3", 1), (4, "none", 3)] {
        for crashes in [false, true] {
            let what = format!("{text}, {slices} slices, crashes: {crashes}");
            let rig = rig(seed, text, slices);
            let pool = rig.open_with(roomy());
            let disks = rig.disks.clone();
            let (volume, mut written, usable) = rig.run(|_| async move {
                let (volume, mut written) = (create(&pool).await, Written::default());
                written.write(&pool, volume, 0).await.unwrap();
                grow(&pool, &disks).await;
                written.fill(&pool, volume).await;
                pool.drain().await.unwrap();
                written.overwrite(&pool, volume, 7).await;
                written.fill(&pool, volume).await;
                let usable = pool.stats().usable_bytes;
                if !crashes {
                    pool.close().await.unwrap();
                }
                (volume, written, usable)
            });
            for round in 0..2 {
                if crashes {
                    rig.world.crash();
                }
                let (pool, what) = (rig.open_with(roomy()), what.clone());
                written = rig.run(|_| async move {
                    let now = pool.stats().usable_bytes;
                    assert!(now + usable / 50 > usable, "{what}, round {round}: {usable} before, {now} now");
                    written.verify(&pool, volume).await;
                    let full = written.0.len();
                    written.overwrite(&pool, volume, 11).await;
                    written.trim(&pool, volume, full / 5).await;
                    written.fill(&pool, volume).await;
                    let refilled = written.0.len();
                    assert!(refilled + full / 50 > full, "{what}, round {round}: {full}, then {refilled}");
                    written.overwrite(&pool, volume, 5).await;
                    written.verify(&pool, volume).await;
                    assert!(matches!(pool.state(), PoolState::Online), "{what}: {:?}", pool.state());
                    if !crashes {
                        pool.close().await.unwrap();
                    }
                    written
                });
            }
            if !crashes {
                rig.check();
            }
        }
    }
}

/// A drive many times as large as the others brings a larger segment table, whose copies take slabs of the others too: it is
/// refused where these have too few, before anything changes, and otherwise the pool goes on.
#[test]
fn a_drive_much_larger_than_the_others_is_kept_count_of_or_refused() {
    let (mut refused, mut added) = (0, 0);
    for (seed, text) in (10..).zip(["mirror", "raid5", "none"]) {
        for (times, is_full) in
            [(1, true), (4, true), (16, true), (40, true), (120, true), (4, false), (40, false)]
        {
            let what = format!("{text}, {times} times as large, full: {is_full}");
            let rig = Rig::of_drives(seed, text.parse().unwrap(), 4, 24 * MIB);
            let pool = rig.open();
            let large = rig.world.disk("large", times * 24 * MIB + MIB);
            let told = what.clone();
            let is_added = rig.run(|world| async move {
                let (volume, mut written) = (create(&pool).await, Written::default());
                if is_full {
                    written.fill(&pool, volume).await;
                } else {
                    written.write(&pool, volume, 0).await.unwrap();
                }
                pool.drain().await.unwrap();
                let (before, members) = (pool.stats().usable_bytes, pool.members());
                let outcome = pool.add_drive(&*world, large, String::new()).await;
                match &outcome {
                    Ok(_) => {}
                    Err(PoolError::Refused(why)) => {
                        assert!(why.contains("to keep count of"), "{told}: {why}");
                        assert_eq!((pool.stats().usable_bytes, pool.members()), (before, members), "{told}");
                    }
                    Err(error) => panic!("{told}: {error}"),
                }
                for _ in 0..2 {
                    written.overwrite(&pool, volume, 3).await;
                    written.fill(&pool, volume).await;
                    pool.drain().await.unwrap();
                }
                written.verify(&pool, volume).await;
                assert!(pool.stats().usable_bytes + MIB > before, "{told}: {before}, {:?}", pool.stats());
                assert!(matches!(pool.state(), PoolState::Online), "{told}: {:?}", pool.state());
                pool.close().await.unwrap();
                outcome.is_ok()
            });
            assert!(is_added || times > 4, "{what}: refused");
            (refused, added) = (refused + u32::from(!is_added), added + u32::from(is_added));
        }
    }
    assert!(refused > 1 && added > 8, "{refused} refused, {added} added");
}
