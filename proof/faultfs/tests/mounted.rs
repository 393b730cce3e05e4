//! The file system as processes see it: mounted, with real system calls.

use quoin_faultfs::{Command, CutMode, Mounted, Op, Options};
use rustix::{
    fs::{FallocateFlags, FlockOperation, OFlags},
    io::ReadWriteFlags,
};
use std::{
    fs::File,
    io::{self, IoSlice},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
};

const LEN: u64 = 1 << 20;
const EIO: i32 = 5;

#[repr(align(4096))]
struct Page([u8; 4096]);

struct Bench {
    mounted: Option<Mounted>,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (backing, drives) = (dir.path().join("backing"), dir.path().join("drives"));
        std::fs::create_dir(&backing).expect("backing");
        std::fs::create_dir(&drives).expect("mount point");
        File::create(backing.join("d0")).and_then(|file| file.set_len(LEN)).expect("a drive");
        let mounted = Mounted::new(&backing, &drives, Options::default()).expect("FUSE works here");
        Self { mounted: Some(mounted), dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("drives/d0")
    }

    fn open(&self) -> io::Result<File> {
        let flags = OFlags::DIRECT.bits() as i32;
        File::options().read(true).write(true).custom_flags(flags).open(self.path())
    }

    fn tell(&self, command: Command) {
        self.mounted.as_ref().expect("mounted").shelf().apply(&command).expect("the command is carried out");
    }

    fn cut(&self, mode: CutMode, seed: u64) -> quoin_faultfs::CutReport {
        let shelf = self.mounted.as_ref().expect("mounted").shelf();
        let report = shelf.power_cut(mode, seed).expect("a cut");
        assert_eq!(self.open().map(|_| ()).expect_err("no power").raw_os_error(), Some(EIO));
        shelf.restore();
        report
    }
}

fn block(file: &File, offset: u64) -> Vec<u8> {
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, offset).expect("a read");
    block
}

#[test]
fn flushed_writes_survive_a_cut_and_others_are_lost() {
    let bench = Bench::new();
    let file = bench.open().expect("open");
    file.write_all_at(&[1; 4096], 0).expect("write");
    file.sync_data().expect("flush");
    file.write_all_at(&[2; 4096], 0).expect("write");
    let durable = [IoSlice::new(&[3; 4096])];
    rustix::io::pwritev2(&file, &durable, 8192, ReadWriteFlags::DSYNC).expect("durable write");
    assert_eq!((block(&file, 0), block(&file, 8192)), (vec![2; 4096], vec![3; 4096]));

    let report = bench.cut(CutMode::Lose, 1);
    assert_eq!((report.lost, report.torn, report.kept), (1, 0, 0));
    let error = file.write_all_at(&[4; 4096], 0).expect_err("the handle died with the power");
    assert_eq!(error.raw_os_error(), Some(EIO));
    let file = bench.open().expect("open after the cut");
    assert_eq!((block(&file, 0), block(&file, 8192)), (vec![1; 4096], vec![3; 4096]));
}

#[test]
fn a_durable_write_over_held_ones_is_not_undone_by_them() {
    let bench = Bench::new();
    let file = bench.open().expect("open");
    file.write_all_at(&[1; 8192], 0).expect("write");
    let durable = [IoSlice::new(&[2; 4096])];
    rustix::io::pwritev2(&file, &durable, 0, ReadWriteFlags::DSYNC).expect("durable write");
    for seed in 0..4 {
        bench.cut(CutMode::Mix, seed);
        let file = bench.open().expect("open");
        assert_eq!(block(&file, 0), vec![2; 4096]);
    }
}

#[test]
fn torn_writes_are_torn_between_sectors_and_the_seed_decides() {
    let tear = |seed| {
        let bench = Bench::new();
        bench.open().expect("open").write_all_at(&[9; 65536], 0).expect("write");
        assert_eq!(bench.cut(CutMode::Tear, seed).torn, 1);
        let mut image = vec![0; 65536];
        bench.open().expect("open").read_exact_at(&mut image, 0).expect("read");
        image
    };
    let image = tear(7);
    assert!(image.chunks(512).all(|sector| sector.iter().all(|&byte| byte == sector[0])));
    assert!(image.contains(&0) && image.contains(&9));
    assert_eq!(image, tear(7));
    assert_ne!(image, tear(8));
}

#[test]
fn drives_fail_lie_corrupt_and_heal_on_command() {
    let bench = Bench::new();
    let file = bench.open().expect("open");
    let drive = || "d0".to_owned();
    bench.tell(Command::Fail { drive: drive(), ops: vec![Op::Flush] });
    file.write_all_at(&[1; 4096], 0).expect("writes still work");
    assert_eq!(file.sync_data().expect_err("flushes fail").raw_os_error(), Some(EIO));
    bench.tell(Command::Heal { drive: drive() });
    file.sync_data().expect("healed");

    bench.tell(Command::Corrupt { drive: drive(), offset: 0, len: 1024, seed: 3 });
    let flipped: u32 = block(&file, 0).iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(flipped, 2, "one bit in each of two sectors");

    bench.tell(Command::IgnoreFlushes { drive: drive() });
    file.write_all_at(&[2; 4096], 4096).expect("write");
    file.sync_data().expect("a lie");
    bench.cut(CutMode::Lose, 1);
    assert_eq!(block(&bench.open().expect("open"), 4096), vec![0; 4096]);
}

#[test]
fn locks_holes_and_sizes_work_as_on_a_local_file() {
    let bench = Bench::new();
    let (file, other) = (bench.open().expect("open"), bench.open().expect("open"));
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).expect("lock");
    assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());

    file.write_all_at(&[1; 8192], 0).expect("write");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 0, 4096).expect("punch");
    assert_eq!((block(&file, 0), block(&file, 4096)), (vec![0; 4096], vec![1; 4096]));
    file.sync_data().expect("flush");
    bench.cut(CutMode::Lose, 1);
    let file = bench.open().expect("open");
    assert_eq!((block(&file, 0), block(&file, 4096)), (vec![0; 4096], vec![1; 4096]));

    file.set_len(2 * LEN).expect("grow");
    file.write_all_at(&[5; 4096], 2 * LEN - 4096).expect("write");
    assert_eq!(file.metadata().expect("metadata").len(), 2 * LEN);
    File::create(bench.dir.path().join("drives/d1")).expect("a new drive");
    assert_eq!(std::fs::read_dir(bench.dir.path().join("drives")).expect("listing").count(), 2);
    std::fs::remove_file(bench.dir.path().join("drives/d1")).expect("removal");
}

#[test]
fn many_threads_write_read_and_flush_at_once_and_unmounting_keeps_everything() {
    let mut bench = Bench::new();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let file = bench.open().expect("open");
            scope.spawn(move || {
                for round in 1..=50u8 {
                    let offset = (thread * 16 + u64::from(round) % 16) * 4096;
                    file.write_all_at(&[round; 4096], offset).expect("write");
                    assert_eq!(block(&file, offset), vec![round; 4096]);
                    if round % 8 == 0 {
                        file.sync_data().expect("flush");
                    }
                }
            });
        }
    });
    bench.mounted = None;
    let medium = std::fs::read(bench.dir.path().join("backing/d0")).expect("the backing file");
    for thread in 0..8 {
        assert_eq!(medium[(thread * 16 + 2) * 4096], 50);
    }
}

#[test]
fn commands_come_over_a_socket() {
    let bench = Bench::new();
    let socket = bench.dir.path().join("control");
    quoin_faultfs::serve(bench.mounted.as_ref().expect("mounted").shelf().clone(), &socket)
        .expect("a socket");
    bench.open().expect("open").write_all_at(&[1; 4096], 0).expect("write");
    let status = quoin_faultfs::ask(&socket, &Command::Status).expect("status");
    assert_eq!(status["drives"][0]["held_bytes"], 4096);
    let refused = quoin_faultfs::ask(&socket, &Command::Heal { drive: "d9".to_owned() }).expect_err("no d9");
    assert!(refused.to_string().contains("no drive called d9; there are: d0"), "{refused}");
}

#[test]
fn a_drive_that_hangs_answers_when_it_is_healed() {
    let bench = Bench::new();
    let file = bench.open().expect("opened");
    bench.tell(Command::Hang { drive: "d0".to_owned() });
    let (done, ended) = std::sync::mpsc::channel();
    let written = std::thread::spawn(move || {
        let page = Page([7; 4096]);
        let outcome = file.write_all_at(&page.0, 0);
        done.send(()).expect("somebody waits");
        outcome
    });
    let waited = ended.recv_timeout(std::time::Duration::from_millis(300));
    assert!(waited.is_err(), "it answered");
    bench.tell(Command::Heal { drive: "d0".to_owned() });
    written.join().expect("no panic").expect("written after all");
}

#[test]
fn a_full_medium_refuses_what_it_must_allocate_and_takes_the_rest() {
    let bench = Bench::new();
    let file = bench.open().expect("opened");
    let page = Page([7; 4096]);
    file.write_all_at(&page.0, 0).expect("written");
    bench.tell(Command::Full { drive: "d0".to_owned() });
    file.write_all_at(&page.0, 0).expect("written over");
    let refused = file.write_all_at(&page.0, 65536).expect_err("no space");
    assert_eq!(refused.raw_os_error(), Some(28));
    bench.tell(Command::Heal { drive: "d0".to_owned() });
    file.write_all_at(&page.0, 65536).expect("written after all");
}
