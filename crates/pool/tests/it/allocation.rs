//! What is said to be mapped, in the buffer, behind it, and after a crash.

use crate::rig::{Rig, create, pattern, read};
use quoin_base::{ByteRange, Extent, GIB, KIB, MIB, VolumeId};
use quoin_pool::Pool;

fn extent(offset: u64, len: u64, mapped: bool) -> Extent {
    Extent { range: ByteRange::new(offset, len), mapped }
}

async fn allocation(pool: &Pool, volume: VolumeId, offset: u64, len: u64) -> Vec<Extent> {
    pool.allocation(volume, ByteRange::new(offset, len), 100).await.unwrap()
}

#[test]
fn buffer_and_maps_say_the_same() {
    let rig = Rig::new(1, 2, 16 * MIB);
    let pool = rig.open();
    let volume = rig.run(|_| async move {
        let volume = create(&pool).await;
        assert_eq!(allocation(&pool, volume, 0, 16 * MIB).await, [extent(0, 16 * MIB, false)]);
        assert_eq!(allocation(&pool, volume, 0, 0).await, []);
        // Across a leaf's end, and a part of a block.
        pool.write(volume, 4 * MIB - 8 * KIB, vec![pattern(1, 16 << 10)]).await.unwrap();
        pool.write(volume, 64 * KIB + 512, vec![pattern(2, 512)]).await.unwrap();
        let expected = [
            extent(0, 64 * KIB, false),
            extent(64 * KIB, 8 * KIB, true),
            extent(72 * KIB, 4 * MIB - 80 * KIB, false),
            extent(4 * MIB - 8 * KIB, 16 * KIB, true),
            extent(4 * MIB + 8 * KIB, 4 * MIB - 8 * KIB, false),
        ];
        assert_eq!(allocation(&pool, volume, 0, 8 * MIB).await, expected);
        pool.drain().await.unwrap();
        assert_eq!(allocation(&pool, volume, 0, 8 * MIB).await, expected);
        assert_eq!(pool.allocation(volume, ByteRange::new(0, 8 * MIB), 2).await.unwrap(), expected[..2]);
        let inside = allocation(&pool, volume, 64 * KIB + 512, 8 * KIB).await;
        assert_eq!(inside, [extent(64 * KIB + 512, 7 * KIB + 512, true), extent(72 * KIB, 512, false)]);

        // Zeroes over a part of a mapped block leave it mapped; over all of it they do not, hardened or destaged.
        pool.unmap(volume, ByteRange::new(4 * MIB - 4 * KIB, 8 * KIB)).await.unwrap();
        assert_eq!(allocation(&pool, volume, 0, 8 * MIB).await, expected);
        pool.unmap(volume, ByteRange::new(4 * MIB - 8 * KIB, 8 * KIB)).await.unwrap();
        let around = async |pool: &Pool| allocation(pool, volume, 4 * MIB - 16 * KIB, 32 * KIB).await;
        let unmapped = [
            extent(4 * MIB - 16 * KIB, 16 * KIB, false),
            extent(4 * MIB, 8 * KIB, true),
            extent(4 * MIB + 8 * KIB, 8 * KIB, false),
        ];
        assert_eq!(around(&pool).await, unmapped);
        volume
    });
    rig.world.crash();
    let pool = rig.open();
    rig.run(|_| async move {
        let around = async |pool: &Pool| allocation(pool, volume, 4 * MIB - 16 * KIB, 32 * KIB).await;
        let buffered = around(&pool).await;
        assert_eq!(buffered.iter().map(|e| e.mapped).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(read(&pool, volume, 4 * MIB - 16 * KIB, 16 * KIB).await, vec![0; 16 << 10]);
        pool.drain().await.unwrap();
        assert_eq!(around(&pool).await, buffered);
        assert_eq!(pool.volume_stats(volume).unwrap().mapped_bytes, 16 * KIB);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_huge_range_is_looked_at_in_steps() {
    let rig = Rig::new(2, 2, 16 * MIB);
    let pool = rig.open();
    rig.run(|_| async move {
        let volume = create(&pool).await;
        pool.write(volume, 20 * GIB, vec![pattern(1, 8 << 10)]).await.unwrap();
        let (mut at, mut found) = (0, Vec::new());
        while at < 40 * GIB {
            let step = allocation(&pool, volume, at, 40 * GIB - at).await;
            assert_eq!(step[0].range.offset, at);
            at = step.last().unwrap().range.end();
            step.into_iter().for_each(|extent| extent.push(&mut found));
        }
        let behind = 20 * GIB + 8 * KIB;
        assert_eq!(
            found,
            [
                extent(0, 20 * GIB, false),
                extent(20 * GIB, 8 * KIB, true),
                extent(behind, 40 * GIB - behind, false)
            ]
        );
        pool.close().await.unwrap();
    });
}
