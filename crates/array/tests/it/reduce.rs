//! What volumes have is reduced on request: what that tells while it runs and at its end, what is refused, how it is cancelled.

use crate::lab::{Lab, create};
use quoin_api::{
    Compression, Deduplication, Event, Job, JobKind, JobState, SnapshotCreate, VolumeCreate, VolumeUpdate,
};
use quoin_array::{Array, ArrayError, EventSelection, JobError};
use quoin_base::{ByteRange, MIB};
use quoin_volume::BlockDevice;
use quoin_world::{Slice, World};
use serde_json::{from_value, json};
use std::{sync::Arc, time::Duration};

const BLOCK: u64 = 8192;
const DATA: u64 = 4 * MIB;

/// What a block holds that can be compressed; two that follow each other are the same.
fn soft(block: u64) -> Vec<u8> {
    (block / 2 + 1).to_le_bytes().repeat(BLOCK as usize / 8)
}

/// What a block holds that cannot.
fn hard(block: u64) -> Vec<u8> {
    let mut state = block << 32 | 0x9e37_79b9;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..BLOCK / 4).flat_map(|_| word().to_le_bytes()).collect()
}

async fn fill(array: &Arc<Array>, name: &str, blocks: u64, content: fn(u64) -> Vec<u8>) {
    array.create_volume(VolumeCreate { size_bytes: 64 * MIB, ..create(name) }).await.unwrap();
    let volume = array.volume(name).unwrap();
    for block in 0..blocks {
        volume.write(block * BLOCK, vec![Slice::copy_of(&content(block))]).await.unwrap();
    }
}

async fn holds(array: &Arc<Array>, name: &str, blocks: u64, content: fn(u64) -> Vec<u8>) {
    let volume = array.volume(name).unwrap();
    for block in 0..blocks {
        let read = volume.read(ByteRange::new(block * BLOCK, BLOCK)).await.unwrap();
        let read: Vec<u8> = read.iter().flat_map(|slice| slice.iter().copied()).collect();
        assert!(read == content(block), "block {block} of {name} differs");
    }
}

async fn set(array: &Arc<Array>, name: &str, update: VolumeUpdate) {
    array.change_volume(name, update).await.unwrap();
}

fn lz4() -> VolumeUpdate {
    VolumeUpdate { compression: Some(Compression::Lz4), ..VolumeUpdate::default() }
}

fn dedup() -> VolumeUpdate {
    VolumeUpdate { deduplication: Some(Deduplication::On), ..VolumeUpdate::default() }
}

async fn ended(array: &Arc<Array>, world: &dyn World, id: &str) -> Job {
    for _ in 0..6000 {
        let job = array.show_job(id).await.unwrap();
        if job.state.is_ended() {
            return job;
        }
        world.sleep(Duration::from_millis(10)).await;
    }
    panic!("job {id} did not end within a minute");
}

/// How many bytes a job that ended says it saved.
fn saved(job: &Job, volume: &str) -> u64 {
    let told = job.object.strip_prefix(&format!("volume {volume}, "));
    told.and_then(|told| told.strip_suffix(" bytes saved")?.parse().ok()).expect(&job.object)
}

/// The events of reductions, oldest first.
fn events(array: &Array) -> Vec<Event> {
    let mut events = array.events(EventSelection { limit: 1000, ..EventSelection::default() });
    events.retain(|event| event.changes.iter().any(|change| change.field == "reduction"));
    events.reverse();
    events
}

#[test]
fn what_a_volume_has_is_reduced_and_told_until_the_array_starts_again() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        fill(&array, "v1", DATA / BLOCK, soft).await;
        let refused = array.reduce_volume("v1").await.unwrap_err();
        assert!(matches!(&refused, ArrayError::Job(JobError::NotReduced { name }) if name == "v1"));
        let problem = refused.problem();
        assert_eq!((problem.status, problem.kind.as_str()), (409, "urn:quoin:problem:not-reduced"));
        assert!(problem.next.contains("set --compression or --dedup first"), "{}", problem.next);
        assert_eq!(array.reduce_volume("v9").await.unwrap_err().problem().status, 404);
        assert!(events(&array).is_empty());
    });
    // What it has is stored as it was written.
    lab.stop(array);
    let array = lab.start();
    let world = lab.world();
    lab.on_array(&array, async move |array| {
        set(&array, "v1", lz4()).await;
        let begun = array.reduce_volume("v1").await.unwrap();
        let uuid = array.show_volume("v1").unwrap().uuid;
        assert_eq!((begun.id.as_str(), begun.kind), (format!("reduce-{uuid}").as_str(), JobKind::Reduce));
        assert!(begun.object.starts_with("volume v1") && !begun.survives_restart, "{begun:?}");
        assert_eq!(begun.cancellable, begun.state == JobState::Running);
        let done = ended(&array, &*world, &begun.id).await;
        assert_eq!((done.state, done.percent, done.error.as_ref()), (JobState::Done, Some(100.0), None));
        assert_eq!((done.done_bytes, done.total_bytes), (Some(DATA), Some(DATA)));
        assert!(done.ended_ms >= done.started_ms && done.ended_ms.is_some() && !done.cancellable);
        assert!(saved(&done, "v1") > DATA / 2, "{}", done.object);
        holds(&array, "v1", DATA / BLOCK, soft).await;
        // It has ended, and there is nothing to cancel.
        let refused = array.cancel_job(&done.id).await.unwrap_err();
        assert!(matches!(refused, ArrayError::Job(JobError::Ended { state: JobState::Done, .. })));
        let told = events(&array);
        let texts: Vec<_> = told.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts[0], "what it has is reduced in the background: compressed with lz4");
        assert!(
            texts[1].starts_with("what it has is reduced: of 512 blocks 512 became shorter"),
            "{texts:?}"
        );
        assert_eq!((told.len(), told[1].object.as_str()), (2, "volume v1"));
        assert!(told[1].actor.is_none());
        // Once more, also deduplicated: what is short already stays, and every second block has a twin.
        set(&array, "v1", dedup()).await;
        let again = array.reduce_volume("v1").await.unwrap();
        let done = ended(&array, &*world, &again.id).await;
        assert!(saved(&done, "v1") > 0, "{}", done.object);
        let text = &events(&array)[3].text;
        assert!(text.contains(" 0 became shorter and 256 have the same content"), "{text}");
        holds(&array, "v1", DATA / BLOCK, soft).await;
    });
    lab.stop(array);
    let array = lab.start();
    lab.on_array(&array, async |array| {
        assert!(array.list_jobs().await.unwrap().iter().all(|job| job.kind != JobKind::Reduce));
        holds(&array, "v1", DATA / BLOCK, soft).await;
    });
    lab.stop(array);
}

#[test]
fn a_snapshot_is_reduced_if_it_is_set_so_and_a_volume_that_is_deleted_is_forgotten() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| {
        fill(&array, "v1", 64, soft).await;
        let snapshot: SnapshotCreate = from_value(json!({ "volume": "v1", "name": "s1" })).unwrap();
        array.create_snapshot(snapshot).await.unwrap();
    });
    lab.stop(array);
    let array = lab.start();
    let world = lab.world();
    lab.on_array(&array, async move |array| {
        // What it shares is reduced as the volume that wrote it.
        set(&array, "v1", lz4()).await;
        assert!(array.reduce_volume("s1").await.is_err());
        set(&array, "s1", lz4()).await;
        let begun = array.reduce_volume("s1").await.unwrap();
        let done = ended(&array, &*world, &begun.id).await;
        assert!(saved(&done, "s1") > 32 * BLOCK, "{}", done.object);
        holds(&array, "v1", 64, soft).await;
        holds(&array, "s1", 64, soft).await;
        let deletion = quoin_api::Deletion { now: true, ..quoin_api::Deletion::default() };
        array.delete_volume("s1", deletion).await.unwrap();
        assert!(array.show_job(&done.id).await.is_err());
    });
    lab.stop(array);
}

#[test]
fn a_reduction_is_cancelled_and_begun_again() {
    let lab = Lab::new();
    let array = lab.start();
    lab.on_array(&array, async |array| fill(&array, "v1", 16 * MIB / BLOCK, hard).await);
    lab.stop(array);
    let array = lab.start();
    let world = lab.world();
    lab.on_array(&array, async move |array| {
        set(&array, "v1", lz4()).await;
        // One may have ended before it is cancelled.
        let mut cancelled = None;
        for _ in 0..20 {
            let begun = array.reduce_volume("v1").await.unwrap();
            // What runs is not begun once more.
            let before = events(&array).len();
            if begun.state == JobState::Running && array.reduce_volume("v1").await.is_ok() {
                cancelled = array.cancel_job(&begun.id).await.ok().map(|job| (job, before));
            }
            if cancelled.as_ref().is_some_and(|(job, _)| job.state == JobState::Cancelled) {
                break;
            }
        }
        let (job, before) = cancelled.unwrap();
        assert_eq!((job.state, job.cancellable), (JobState::Cancelled, false));
        assert!(job.ended_ms.is_some() && job.object.starts_with("volume v1, 0 bytes saved"), "{job:?}");
        let told = events(&array);
        assert_eq!(told.len(), before + 1, "{told:?}");
        let text = &told.last().unwrap().text;
        assert!(text.starts_with("its reduction was cancelled: of "), "{text}");
        let begun = array.reduce_volume("v1").await.unwrap();
        let done = ended(&array, &*world, &begun.id).await;
        assert_eq!((done.state, saved(&done, "v1")), (JobState::Done, 0));
        holds(&array, "v1", 16 * MIB / BLOCK, hard).await;
    });
    lab.stop(array);
}
