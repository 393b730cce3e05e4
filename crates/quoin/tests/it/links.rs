//! Drives given as links, as in `/dev/disk/by-id`: the links are kept, and drives are known by their labels.

use crate::lab::Lab;
use serde_json::Value;
use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

struct Devices {
    devices: PathBuf,
    links: PathBuf,
}

impl Devices {
    /// Devices `a` and `b`, and a link to each in another directory.
    fn new(lab: &Lab) -> Devices {
        let beside = lab.data().parent().unwrap();
        let (devices, links) = (beside.join("devices"), beside.join("by-id"));
        fs::create_dir(&devices).unwrap();
        fs::create_dir(&links).unwrap();
        let all = Devices { devices, links };
        for name in ["a", "b"] {
            all.make(name);
            all.link(name, name);
        }
        all
    }

    fn make(&self, name: &str) {
        File::create(self.device(name)).and_then(|file| file.set_len(160 << 20)).unwrap();
    }

    fn device(&self, name: &str) -> PathBuf {
        self.devices.join(name)
    }

    fn path(&self, name: &str) -> String {
        self.links.join(name).display().to_string()
    }

    /// Lets link `name` lead to a device.
    fn link(&self, name: &str, device: &str) {
        let link = self.links.join(name);
        drop(fs::remove_file(&link));
        symlink(self.device(device), link).unwrap();
    }
}

fn drives(status: &Value, key: &str) -> Vec<Option<String>> {
    let drives = status["drives"].as_array().unwrap();
    drives.iter().map(|drive| drive[key].as_str().map(str::to_owned)).collect()
}

fn shown(paths: &[&Path]) -> Vec<Option<String>> {
    paths.iter().map(|path| Some(fs::canonicalize(path).unwrap().display().to_string())).collect()
}

#[test]
fn links_are_kept_and_drives_are_found_by_their_labels() {
    let lab = Lab::new();
    let all = Devices::new(&lab);
    let (a, b) = (all.path("a"), all.path("b"));
    lab.ok(&["init", "--drive", &a, "--drive", &b]);
    let config = fs::read_to_string(lab.data().join("quoin.toml")).unwrap();
    assert!(config.contains(&format!("{a:?}")) && config.contains(&format!("{b:?}")), "{config}");

    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    assert_eq!(drives(&status, "path"), [Some(a.clone()), Some(b.clone())]);
    assert_eq!(drives(&status, "device"), shown(&[&all.device("a"), &all.device("b")]));
    lab.ok(&["volume", "create", "kept", "--size", "1G"]);
    serving.terminate();

    // The devices have changed names: the links lead to each other's drives.
    all.link("a", "b");
    all.link("b", "a");
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    assert_eq!(drives(&status, "device"), shown(&[&all.device("b"), &all.device("a")]));
    assert_eq!(drives(&status, "found_at"), [None, None]);
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);

    // A link is gone, and its drive has another link beside it.
    fs::remove_file(all.links.join("b")).unwrap();
    all.link("moved", "a");
    let mut serving = lab.serve(&[]);
    let status = lab.ready();
    assert_eq!(drives(&status, "found_at"), [None, Some(all.path("moved"))]);
    lab.until(&["events"], |events| events.to_string().contains("no longer leads to it"));
    assert!(lab.ok(&["volume", "list"]).contains("kept"));
    assert!(lab.ok(&["status"]).contains(&format!("(not at {b})")));
    serving.terminate();
    assert_eq!(lab.json(&["check"])["ok"], true);

    // The link leads to something else. It is not touched, and the drive is found.
    all.make("foreign");
    let foreign = [b"XFSB".as_slice(), &[0; 508]].concat();
    fs::write(all.device("foreign"), [foreign.as_slice(), &vec![0; 2 << 20]].concat()).unwrap();
    let before = fs::read(all.device("foreign")).unwrap();
    all.link("b", "foreign");
    let mut serving = lab.serve(&[]);
    assert_eq!(drives(&lab.ready(), "found_at"), [None, Some(all.path("moved"))]);
    serving.terminate();

    // Where the drive is nowhere, the foreign one is named.
    fs::remove_file(all.links.join("moved")).unwrap();
    let _serving = lab.serve(&[]);
    let offline = lab.until(&["status"], |status| status["state"] == "offline");
    let reason = offline["reason"].as_str().unwrap();
    assert!(reason.contains(&b) && reason.contains("XFS"), "{reason}");
    assert!(fs::read(all.device("foreign")).unwrap() == before);
    // It comes back while the array runs.
    all.link("again", "a");
    assert_eq!(drives(&lab.ready(), "found_at"), [None, Some(all.path("again"))]);
}
