//! Drives that hang under a serving array: hosts get errors instead of silence, everybody is told, the array stops when
//! asked, and it goes on by itself when the drive answers.
//!
//! A test target of its own: its process serves the file system that hangs.

#[allow(dead_code, reason = "shared by several tests")]
#[path = "it/lab/mod.rs"]
mod lab;

#[allow(dead_code, reason = "shared by several tests")]
#[path = "it/initiator/mod.rs"]
mod initiator;

use initiator::{Initiator, LONGEST_BYTES, Sense};
use lab::Lab;
use quoin_faultfs::{Command, Mounted, Options};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::PathBuf,
    time::Duration,
};

const NAME: &str = "iqn.2026-11.test:h1";
/// NOT READY.
const NOT_READY: u8 = 0x2;
const LUN: u8 = 1;
const PATIENCE: [&str; 4] = ["--drive-suspect", "1", "--drive-fail", "3"];

struct Shelf {
    mounted: Mounted,
    drives: PathBuf,
}

impl Shelf {
    /// Two drives beside the data directory.
    fn new(lab: &Lab) -> Shelf {
        let beside = lab.data().parent().unwrap();
        let (backing, drives) = (beside.join("backing"), beside.join("drives"));
        fs::create_dir(&backing).unwrap();
        fs::create_dir(&drives).unwrap();
        for name in ["d0", "d1"] {
            File::create(backing.join(name)).and_then(|file| file.set_len(160 << 20)).unwrap();
        }
        let mounted = Mounted::new(&backing, &drives, Options::default()).expect("FUSE works here");
        Shelf { mounted, drives }
    }

    fn path(&self, name: &str) -> String {
        self.drives.join(name).display().to_string()
    }

    fn tell(&self, command: &Command) {
        self.mounted.shelf().apply(command).unwrap();
    }

    fn hang(&self, drive: &str) {
        self.tell(&Command::Hang { drive: drive.to_owned() });
    }

    fn heal(&self, drive: &str) {
        self.tell(&Command::Heal { drive: drive.to_owned() });
    }
}

fn login(status: &Value) -> Initiator {
    let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
    Initiator::login(portal, target, NAME)
}

fn content(round: u8) -> Vec<u8> {
    vec![round; LONGEST_BYTES]
}

/// Tries until it works: the pool opens by itself.
fn until_written(lab: &Lab, round: u8) -> Initiator {
    let mut initiator = login(&lab.ready());
    initiator.write(LUN, 0, &content(round)).unwrap();
    initiator
}

#[test]
fn hosts_get_errors_all_is_told_the_array_stops_and_goes_on_by_itself() {
    let lab = Lab::new();
    let shelf = Shelf::new(&lab);
    lab.ok(&["init", "--drive", &shelf.path("d0"), "--drive", &shelf.path("d1")]);
    let mut serving = lab.serve(&PATIENCE);
    lab.ready();
    lab.ok(&["volume", "create", "v", "--size", "64M"]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v", "--host", "h1", "--lun", "1"]);
    let mut initiator = until_written(&lab, 1);

    for drive in ["d0", "d1"] {
        shelf.hang(drive);
    }
    let writer = std::thread::spawn(move || {
        let outcome = initiator.write(LUN, 0, &content(2));
        // The next one is refused at once.
        (outcome, initiator.write(LUN, 0, &content(3)))
    });
    let stalled = lab.until(&["status"], |status| status["state"] == "stalled");
    assert_eq!(stalled["ready"], false, "{stalled}");
    let answers = |status: &Value| -> Vec<String> {
        let drives = status["drives"].as_array().unwrap();
        drives.iter().map(|drive| drive["answers"].as_str().unwrap().to_owned()).collect()
    };
    assert!(answers(&stalled).contains(&"suspect".to_owned()), "{stalled}");
    let offline = lab.until(&["status"], |status| status["state"] == "offline");
    assert!(offline["reason"].as_str().unwrap().contains("answer"), "{offline}");
    assert!(answers(&offline).contains(&"failed".to_owned()), "{offline}");
    let refused = |outcome: Result<(), Sense>| matches!(outcome, Err((NOT_READY, ..)));
    let (first, second) = writer.join().unwrap();
    assert!(refused(first) && refused(second), "{first:x?}, {second:x?}");

    // It answers: the pool opens by itself, and the late write is below what is written now.
    for drive in ["d0", "d1"] {
        shelf.heal(drive);
    }
    let mut initiator = until_written(&lab, 4);
    assert_eq!(initiator.read(LUN, 0, LONGEST_BYTES).unwrap(), content(4));
    lab.until(&["events"], |events| {
        let events = events.to_string();
        events.contains("has not answered") && events.contains("is reopened")
    });

    // Asked to stop while a drive hangs, it stops.
    shelf.hang("d0");
    let writer = std::thread::spawn(move || initiator.write(LUN, 0, &content(5)).is_err());
    std::thread::sleep(Duration::from_millis(200));
    let ended = serving.stop_within(Duration::from_secs(60));
    // The kernel keeps what is left of a process until the drive answers, where that drive is a file system's.
    shelf.heal("d0");
    assert!(ended || serving.stop_within(Duration::from_secs(10)), "it goes on after SIGTERM");
    drop(writer.join());
    println!("ended while the drive hung: {ended}");
    let mut serving = lab.serve(&PATIENCE);
    let mut initiator = login(&lab.ready());
    let read = initiator.read(LUN, 0, LONGEST_BYTES).unwrap();
    assert!(read == content(4) || read == content(5), "what was acknowledged is there");
    drop(initiator);
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);
}
