//! Copies of ranges: what they hold, what is refused meanwhile, and how they end, whatever happens to them.

use crate::lab::{Lab, create};
use crate::years::{Day, Ending, Years};
use quoin_api::{
    CopyCreate, CopyState, Deletion, HostCreate, MappingCreate, Severity, SnapshotCreate, State, VolumeCopy,
    VolumeCreate, VolumeUpdate,
};
use quoin_array::{Array, ArrayError, EventSelection};
use quoin_base::{ByteRange, MIB};
use quoin_target::NexusName;
use quoin_volume::{BlockDevice, Volume};
use quoin_world::{Slice, Thread, World};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const BLOCK: u64 = 8192;
const SIZE: u64 = 16 * MIB;

/// For good: what was deleted is looked for in the pool's space.
fn now() -> Deletion {
    Deletion { now: true, ..Deletion::default() }
}

fn copy(target: &str) -> CopyCreate {
    CopyCreate { target: target.into(), from_bytes: 0, to_bytes: 0, length_bytes: None, force: false }
}

async fn volumes(array: &Arc<Array>, names: &[&str]) {
    for name in names {
        array.create_volume(VolumeCreate { size_bytes: SIZE, ..create(name) }).await.unwrap();
    }
}

/// What is written at an offset: no two places of any volume have the same.
fn content(tag: u64, offset: u64, len: u64) -> Vec<u8> {
    (offset / 512..(offset + len) / 512)
        .flat_map(|sector| (tag << 32 | sector).to_le_bytes().repeat(64))
        .collect()
}

async fn fill(volume: &Volume, tag: u64, range: ByteRange) {
    for piece in range.split(MIB) {
        let data = content(tag, piece.offset, piece.len);
        volume.write(piece.offset, vec![Slice::copy_of(&data)]).await.unwrap();
    }
}

async fn read(volume: &Volume, range: ByteRange) -> Vec<u8> {
    let slices = volume.read(range).await.unwrap();
    slices.iter().flat_map(|slice| slice.iter().copied()).collect()
}

/// Whether a range holds what was written with this tag to the range of the same length at `from`; 0: nothing.
async fn holds(volume: &Volume, range: ByteRange, tag: u64, from: u64) -> bool {
    for piece in range.split(MIB) {
        let expected = match tag {
            0 => vec![0; piece.len as usize],
            tag => content(tag, from + (piece.offset - range.offset), piece.len),
        };
        if read(volume, piece).await != expected {
            return false;
        }
    }
    true
}

async fn ended(array: &Arc<Array>, world: &dyn World, id: u32) -> VolumeCopy {
    for _ in 0..6000 {
        let copy = array.show_copy(id).unwrap();
        if copy.state.is_ended() {
            return copy;
        }
        world.sleep(Duration::from_millis(10)).await;
    }
    panic!("waited for a minute in vain");
}

fn kind(error: &ArrayError) -> String {
    error.problem().kind.rsplit(':').next().unwrap().to_owned()
}

fn told(array: &Array, severity: Severity, part: &str) -> bool {
    let all = array.events(EventSelection::default());
    all.iter().any(|event| event.severity == severity && event.text.contains(part))
}

#[test]
fn volumes_and_ranges_are_copied_as_of_the_moment_at_which_the_copy_began() {
    let lab = Lab::new();
    let array = lab.start();
    let world = lab.world();
    lab.on_array(&array, async move |array| {
        volumes(&array, &["v1", "v2", "v3"]).await;
        let [v1, v2, v3] = ["v1", "v2", "v3"].map(|name| array.volume(name).unwrap());
        fill(&v1, 1, ByteRange::new(0, 8 * MIB)).await;
        fill(&v2, 2, ByteRange::new(0, SIZE)).await;
        let before = array.list_volumes().unwrap().len();

        // All of it: what is a hole in the source is one in the target.
        let begun = array.copy_volume("v1", copy("v2")).await.unwrap();
        assert_eq!((begun.state, begun.length_bytes, begun.to_bytes), (CopyState::Running, SIZE, 0));
        assert_eq!((array.list_volumes().unwrap().len(), array.figures().copies.running), (before, 1));
        fill(&v1, 3, ByteRange::new(0, MIB)).await;
        let done = ended(&array, &*world, begun.id).await;
        assert_eq!((done.state, done.done_bytes, done.error), (CopyState::Done, SIZE, None));
        assert!(done.ended_ms.is_some() && done.bytes_per_s.is_some() && done.remaining_s.is_none());
        assert!(holds(&v2, ByteRange::new(0, 8 * MIB), 1, 0).await, "what v1 was");
        assert!(holds(&v2, ByteRange::new(8 * MIB, SIZE - 8 * MIB), 0, 0).await, "the hole");

        // A range that lies on no blocks, and not alike in both.
        let odd = CopyCreate {
            from_bytes: 2 * MIB + 512,
            to_bytes: 5 * MIB + 1024,
            length_bytes: Some(3 * MIB + 1536),
            ..copy("v3")
        };
        fill(&v3, 4, ByteRange::new(4 * MIB, 8 * MIB)).await;
        let done = array.copy_volume("v1", odd).await.unwrap();
        assert_eq!(ended(&array, &*world, done.id).await.state, CopyState::Done);
        let end = 8 * MIB + 2560;
        assert!(holds(&v3, ByteRange::new(5 * MIB + 1024, 3 * MIB + 1536), 1, 2 * MIB + 512).await);
        assert!(holds(&v3, ByteRange::new(4 * MIB, MIB + 1024), 4, 4 * MIB).await, "before it");
        assert!(holds(&v3, ByteRange::from(end..12 * MIB), 4, end).await, "behind it");

        // Within one volume, onto a part of what is copied.
        let within = CopyCreate { to_bytes: 2 * MIB, length_bytes: Some(6 * MIB), ..copy("v2") };
        let done = array.copy_volume("v2", within).await.unwrap();
        assert_eq!(ended(&array, &*world, done.id).await.state, CopyState::Done);
        assert!(holds(&v2, ByteRange::new(2 * MIB, 6 * MIB), 1, 0).await, "as it was before");
        let ids: Vec<_> = array.list_copies().unwrap().iter().map(|copy| copy.id).collect();
        assert!(ids.len() == 3 && ids.is_sorted(), "{ids:?}");
        let copied = array.figures().copies;
        assert_eq!((copied.running, copied.copied_bytes), (0, SIZE + 3 * MIB + 1536 + 6 * MIB));
        assert!(told(&array, Severity::Info, "of volume v1 is done: 16777216 of 16777216 bytes are copied"));
    });
    lab.stop(array);
}

#[test]
fn what_cannot_be_copied_is_refused_and_the_refusal_says_what_would_do() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        volumes(&array, &["v1", "gold"]).await;
        let small = VolumeCreate { size_bytes: MIB, block_bytes: 4096, ..create("small") };
        array.create_volume(small).await.unwrap();
        let template = VolumeUpdate { template: Some(true), ..VolumeUpdate::default() };
        array.change_volume("gold", template).await.unwrap();
        let kept = SnapshotCreate {
            volume: "v1".into(),
            name: Some("kept".into()),
            tags: Default::default(),
            writable: false,
            retain_s: Some(3600),
        };
        array.create_snapshot(kept).await.unwrap();
        let at = |from_bytes, to_bytes, length| CopyCreate {
            from_bytes,
            to_bytes,
            length_bytes: Some(length),
            ..copy("small")
        };
        for (request, expected, said) in [
            (
                copy("small"),
                "too-small",
                "1048576 bytes; to take what is copied it must have at least 16777216",
            ),
            (at(0, MIB, 4096), "too-small", "at least 1052672"),
            (at(512, 0, 4096), "invalid", "the first byte, 512, is not a multiple of 4096 bytes"),
            (at(0, 512, 4096), "invalid", "the byte it goes to, 512, is"),
            (at(0, 0, 4608), "invalid", "the length, 4608, is"),
            (at(SIZE, 0, 4096), "invalid", "no 4096 bytes to copy from byte 16777216 on"),
            (at(0, 0, 0), "invalid", "no 0 bytes"),
            (at(u64::MAX - 4095, 0, 8192), "invalid", "volume v1 has 16777216 bytes"),
            (copy("v1"), "itself", "copied onto itself"),
            (copy("gold"), "template", "gold is a template"),
            (copy("kept"), "immutable", "kept is immutable"),
            (copy("none"), "not-found", "volume none does not exist"),
        ] {
            let refused = array.copy_volume("v1", request).await.unwrap_err();
            assert_eq!(kind(&refused), expected, "{refused}");
            assert!(refused.problem().detail.contains(said), "{refused}");
        }
        let grow = array.copy_volume("v1", copy("small")).await.unwrap_err().problem().next;
        assert!(grow.contains("quoin volume grow small --size 16777216"), "{grow}");

        // Hosts would find other content.
        volumes(&array, &["v2"]).await;
        let iqn = "iqn.2026-11.test:h1".to_owned();
        let host = HostCreate { name: "h1".into(), initiators: vec![iqn.clone()], chap: None };
        array.create_host(host).await.unwrap();
        let mapping = MappingCreate {
            volume: "v2".into(),
            host: "h1".into(),
            lun: None,
            read_only: false,
            writable: false,
        };
        array.map(mapping).await.unwrap();
        let name = NexusName { initiator: iqn, isid: [1; 6], group: 1 };
        let nexus = array.target().connect(name, "10.0.0.7:4711".into(), 0).await;
        let refused = array.copy_volume("v1", copy("v2")).await.unwrap_err();
        assert_eq!(kind(&refused), "in-use");
        assert!(refused.to_string().contains("host h1 sees v2 as LUN 0"), "{refused}");
        array.copy_volume("v1", CopyCreate { force: true, ..copy("v2") }).await.unwrap();
        drop(nexus);
        assert_eq!(kind(&array.show_copy(999).unwrap_err()), "not-found");
    });
    lab.stop(array);
}

#[test]
fn a_copy_goes_on_under_the_writes_of_hosts_and_renames_until_it_is_cancelled_or_its_source_gone() {
    let lab = Lab::new();
    let array = lab.start();
    let world = lab.world();
    lab.on_array(&array, async move |array| {
        volumes(&array, &["v1", "v2", "v3"]).await;
        fill(&array.volume("v1").unwrap(), 1, ByteRange::new(0, SIZE)).await;
        let stop = Arc::new(AtomicBool::new(false));
        let (target, stopped) = (array.volume("v2").unwrap(), stop.clone());
        let writer = world.run_on(Thread::Data(0), async move {
            let mut written = 0_u64;
            while !stopped.load(Ordering::Relaxed) {
                fill(&target, 9, ByteRange::new(written * BLOCK % SIZE, BLOCK)).await;
                written += 1;
            }
            written
        });
        let begun = array.copy_volume("v1", copy("v2")).await.unwrap();
        let refused = array.delete_volume("v2", now()).await.unwrap_err();
        assert_eq!(kind(&refused), "copied-into");
        assert!(refused.to_string().contains("of volume v1 writes into volume v2"), "{refused}");
        let cancel = format!("quoin volume copy-cancel {}", begun.id);
        assert!(refused.problem().next.contains(&cancel), "{refused}");
        let rename = VolumeUpdate { name: Some("old".into()), ..VolumeUpdate::default() };
        array.change_volume("v1", rename).await.unwrap();
        assert_eq!(array.show_copy(begun.id).unwrap().source, "old");

        let other = array.copy_volume("old", copy("v3")).await.unwrap().id;
        array.cancel_copy(other).await.unwrap();
        assert_eq!(array.show_copy(other).unwrap().state, CopyState::Cancelled);
        assert!(told(&array, Severity::Info, &format!("copy {other} of volume old was cancelled: ")));
        let again = array.cancel_copy(other).await.unwrap_err();
        assert_eq!((kind(&again).as_str(), again.problem().status), ("not-running", 409));
        array.delete_volume("v3", now()).await.unwrap();

        array.delete_volume("old", now()).await.unwrap();
        let done = ended(&array, &*world, begun.id).await;
        assert_eq!((done.state, done.source.as_str()), (CopyState::Done, "v1"));
        stop.store(true, Ordering::Relaxed);
        assert!(writer.await.unwrap() > 0);
        let v2 = array.volume("v2").unwrap();
        for offset in (0..SIZE).step_by(BLOCK as usize) {
            let block = ByteRange::new(offset, BLOCK);
            assert!(holds(&v2, block, 1, offset).await || holds(&v2, block, 9, offset).await, "{offset}");
        }
        array.delete_volume("v2", now()).await.unwrap();
    });
    lab.until(|| array.status().capacity.is_some_and(|capacity| capacity.used_bytes == 0));
    lab.stop(array);
}

#[test]
fn a_copy_that_a_stop_interrupts_is_ended_at_the_next_start_and_is_not_gone_on_with() {
    let lab = Lab::new();
    let array = lab.start();
    let id = lab.on_array(&array, async |array| {
        volumes(&array, &["v1", "v2"]).await;
        fill(&array.volume("v1").unwrap(), 1, ByteRange::new(0, SIZE)).await;
        array.copy_volume("v1", copy("v2")).await.unwrap().id
    });
    lab.stop(array);
    let array = lab.start();
    lab.until(|| array.show_copy(id).is_ok_and(|copy| copy.state.is_ended()));
    let copy = array.show_copy(id).unwrap();
    assert_eq!((copy.state, copy.source.as_str(), copy.target.as_str()), (CopyState::Failed, "v1", "v2"));
    assert!(copy.error.unwrap().contains("interrupted"));
    assert!(told(&array, Severity::Warning, &format!("copy {id} of volume v1 was interrupted")));
    lab.on_array(&array, async |array| {
        array.delete_volume("v2", now()).await.unwrap();
        array.delete_volume("v1", now()).await.unwrap();
    });
    // Nothing is left of it.
    lab.until(|| array.status().capacity.is_some_and(|capacity| capacity.used_bytes == 0));
    lab.stop(array);
}

#[test]
fn a_copy_fails_with_the_pool_and_is_ended_when_that_is_back() {
    let lab = Lab::new();
    let array = lab.start();
    let id = lab.on_array(&array, async |array| {
        volumes(&array, &["v1", "v2"]).await;
        fill(&array.volume("v1").unwrap(), 1, ByteRange::new(0, SIZE)).await;
        array.copy_volume("v1", copy("v2")).await.unwrap().id
    });
    lab.break_drive();
    lab.wait(&array, State::Offline);
    let state = || array.show_copy(id).unwrap().state;
    lab.until(|| state() == CopyState::Finishing);
    lab.mend_drive();
    lab.wait(&array, State::Online);
    lab.until(|| state() == CopyState::Failed);
    assert!(array.show_copy(id).unwrap().error.unwrap().contains("offline"));
    assert!(told(&array, Severity::Error, &format!("copy {id} of volume v1 failed: ")));
    assert!(!told(&array, Severity::Warning, "was interrupted"));
    lab.on_array(&array, async |array| {
        let copy = array.copy_volume("v1", copy("v2")).await.unwrap();
        array.cancel_copy(copy.id).await.unwrap();
        array.delete_volume("v2", now()).await.unwrap();
    });
    lab.stop(array);
}

#[test]
fn a_copy_that_is_done_before_it_notices_its_cancellation_is_not_reported_as_cancelled() {
    Years::new(61).boot(Ending::Stop, async |day: Day| {
        let array = &day.array;
        volumes(array, &["v1", "v2"]).await;
        let id = array.copy_volume("v1", copy("v2")).await.unwrap().id;
        let state = || array.show_copy(id).unwrap().state;
        while state() == CopyState::Running {
            day.pass(Duration::from_micros(1)).await;
        }
        assert_eq!(state(), CopyState::Finishing, "its end is being recorded");
        let refused = array.cancel_copy(id).await.unwrap_err();
        assert_eq!((kind(&refused).as_str(), state()), ("not-running", CopyState::Done));
        assert!(refused.to_string().ends_with("has already ended: done"), "{refused}");
    });
}
