//! Drives that answer late or not at all.

use super::*;
use quoin_world::Buf;
use quoin_world_sim::{SimDisk, SimOptions, SimWorld};

const PATIENCE: Patience =
    Patience { suspect_after: Duration::from_millis(800), fail_after: Duration::from_millis(2000) };

struct Rig {
    world: Arc<SimWorld>,
    disk: Arc<SimDisk>,
    watch: Arc<DriveWatch>,
    told: Arc<Mutex<Vec<Answers>>>,
}

fn rig() -> Rig {
    let world = SimWorld::new(1, SimOptions::default());
    let disk = world.disk("d0", 4 << 20);
    let told = Arc::new(Mutex::new(Vec::new()));
    let watch = DriveWatch::new(world.clone(), PATIENCE, {
        let told = told.clone();
        move |answers| told.lock().push(answers)
    });
    Rig { world, disk, watch, told }
}

fn write(disk: &Arc<dyn Disk>, fill: u8) -> Completion {
    let data = vec![Buf::copy_of(&[fill; 512]).into_slice()];
    disk.submit(DiskOp::Write { offset: 0, data, durable: true })
}

fn read(disk: &Arc<dyn Disk>) -> Completion {
    disk.submit(DiskOp::Read { offset: 0, buf: Buf::zeroed(512) })
}

fn is_timed_out<T>(outcome: &Result<T, DiskError>) -> bool {
    matches!(outcome, Err(DiskError::TimedOut { .. }))
}

#[test]
fn a_drive_that_does_not_answer_is_suspect_then_failed_and_is_taken_back_when_it_has_finished() {
    let Rig { world, disk, watch, told } = rig();
    let outer = world.clone();
    let done = outer.run(async move {
        let opened = watch.admit(disk.clone()).unwrap();
        write(&opened, 1).await.unwrap();
        disk.hang();
        let begun = world.now();
        let (stuck_write, stuck_read) = (write(&opened, 2), read(&opened));
        world.sleep(Duration::from_millis(1200)).await;
        assert!(matches!(watch.answers(), Answers::Suspect(_)), "{:?}", watch.answers());
        assert!(is_timed_out(&stuck_write.await) && is_timed_out(&stuck_read.await));
        let waited = world.now().since(begun);
        assert!((2000..2300).contains(&waited.as_millis()), "{waited:?}");

        // What comes later is refused at once, also when the disk answers again.
        let before = world.now();
        assert!(is_timed_out(&write(&opened, 3).await));
        assert_eq!(world.now(), before);
        let owed = |refused: Result<Arc<dyn Disk>, DriveError>| match refused.map(drop) {
            Err(DriveError::Owes { operations, .. }) => operations,
            other => panic!("{other:?}"),
        };
        assert_eq!(owed(watch.admit(disk.clone())), 2);
        disk.resume(Duration::from_millis(300));
        assert!(is_timed_out(&read(&opened).await));
        assert!(owed(watch.admit(disk.clone())) > 0);
        while watch.under_way() > 0 {
            world.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(watch.timeouts(), 2);
        let again = watch.admit(disk.clone()).unwrap();
        // The late write took effect, and before anything of the new opening.
        assert_eq!(read(&again).await.unwrap()[0], 2);
        write(&again, 4).await.unwrap();
        assert!(is_timed_out(&write(&opened, 5).await), "the old opening has failed for good");
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(read(&again).await.unwrap()[0], 4);
    });
    done.unwrap();
    let kinds: Vec<_> = told.lock().iter().map(std::mem::discriminant).collect();
    let expected = [Answers::Suspect(Duration::ZERO), Answers::Failed(Duration::ZERO), Answers::InTime];
    assert_eq!(kinds, expected.map(|answers| std::mem::discriminant(&answers)));
}

#[test]
fn a_drive_that_answers_before_the_end_goes_on() {
    let Rig { world, disk, watch, told } = rig();
    let outer = world.clone();
    let done = outer.run(async move {
        let opened = watch.admit(disk.clone()).unwrap();
        disk.hang();
        let stuck = write(&opened, 1);
        world.sleep(Duration::from_millis(1500)).await;
        disk.resume(Duration::ZERO);
        stuck.await.unwrap();
        world.sleep(Duration::from_millis(500)).await;
        assert_eq!(watch.answers(), Answers::InTime);
        write(&opened, 2).await.unwrap();
        assert_eq!(watch.timeouts(), 0);
    });
    done.unwrap();
    assert!(matches!(told.lock()[..], [Answers::Suspect(_), Answers::InTime]), "{:?}", told.lock());
}

#[test]
fn in_a_hurry_suspect_is_failed() {
    let Rig { world, disk, watch, .. } = rig();
    let outer = world.clone();
    let done = outer.run(async move {
        let opened = watch.admit(disk.clone()).unwrap();
        disk.hang();
        watch.hurry();
        let begun = world.now();
        assert!(is_timed_out(&write(&opened, 1).await));
        assert!(world.now().since(begun) < Duration::from_millis(1100));
    });
    done.unwrap();
}

#[test]
fn an_idle_drive_is_not_looked_at_and_the_next_operation_starts_the_watch() {
    let Rig { world, disk, watch, .. } = rig();
    let outer = world.clone();
    let done = outer.run(async move {
        let opened = watch.admit(disk.clone()).unwrap();
        write(&opened, 1).await.unwrap();
        world.sleep(Duration::from_secs(2)).await;
        let looks = watch.inner.lock().looks;
        world.sleep(Duration::from_secs(60)).await;
        assert_eq!(watch.inner.lock().looks, looks);
        disk.hang();
        assert!(is_timed_out(&read(&opened).await));
    });
    done.unwrap();
}

#[test]
fn what_is_over_does_not_pile_up_behind_one_that_is_not() {
    let Rig { world, disk, watch, .. } = rig();
    let outer = world.clone();
    let done = outer.run(async move {
        let opened = watch.admit(disk.clone()).unwrap();
        let (completer, stuck) = Completion::new();
        watch.begun(stuck.outstanding(), &AtomicBool::new(false), "d0");
        for _ in 0..5000 {
            write(&opened, 1).await.unwrap();
            assert!(watch.inner.lock().under_way.len() <= SWEPT_AT);
        }
        drop(completer);
        assert_eq!(watch.under_way(), 0);
    });
    done.unwrap();
}

#[test]
fn a_disk_that_is_let_go_is_closed_and_takes_nothing_more() {
    let Rig { world, disk, watch, .. } = rig();
    let outer = world.clone();
    let done = outer.run(async move {
        let below: Arc<dyn Disk> = disk.clone();
        let holders = Arc::strong_count(&below);
        let opened = watch.admit(below.clone()).unwrap();
        write(&opened, 7).await.unwrap();
        assert_eq!(Arc::strong_count(&below), holders + 1);
        watch.let_go();
        assert_eq!(Arc::strong_count(&below), holders, "the opening is still held, and does not hold it");
        for refused in [write(&opened, 8).await, read(&opened).await, opened.submit(DiskOp::Flush).await] {
            let error = refused.unwrap_err();
            assert!(
                matches!(&error, DiskError::Io { source, .. } if source.raw_os_error() == Some(ENODEV)),
                "{error}"
            );
        }
        assert_eq!(disk.peek(0, 512), [7; 512]);
        // Whoever opens it next can use it.
        let again = watch.admit(below).unwrap();
        write(&again, 9).await.unwrap();
    });
    done.unwrap();
}
