//! Every checked-in input of every target, and changed ones of them: none may make a target panic.

use quoin_fuzzing::{Mutations, TARGETS, Target};
use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

const FUZZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz");
/// All inputs together stay below this.
const MOST_BYTES: u64 = 1 << 20;

fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    ["corpus", "regressions"]
        .iter()
        .flat_map(|kind| files(&Path::new(FUZZ).join(kind).join(target.name)))
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect()
}

fn replay(name: &str) {
    let target = quoin_fuzzing::target(name).unwrap();
    let inputs = inputs(target);
    assert!(!inputs.is_empty(), "no inputs of {name}: cargo xtask fuzz --make-seeds");
    for (path, bytes) in &inputs {
        assert!(
            catch_unwind(|| (target.run)(bytes)).is_ok(),
            "{path} fails: cargo run -p quoin-fuzzing -- run {name} {path}"
        );
    }
    let bytes: Vec<Vec<u8>> = inputs.into_iter().map(|(_, bytes)| bytes).collect();
    let mut mutations = Mutations::new(1, (target.words)());
    for number in 0..target.mutations {
        let input = mutations.of(&bytes);
        if catch_unwind(|| (target.run)(&input)).is_err() {
            let path = std::env::temp_dir().join(format!("quoin-{name}-{number}"));
            fs::write(&path, &input).unwrap();
            panic!(
                "changed input {number} fails: cargo run -p quoin-fuzzing -- run {name} {}",
                path.display()
            );
        }
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

        #[test]
        fn every_target_is_replayed_here_and_known_to_the_fuzzer() {
            let replayed = [$(stringify!($name)),*];
            let manifest = fs::read_to_string(Path::new(FUZZ).join("Cargo.toml")).unwrap();
            for target in TARGETS {
                assert!(replayed.contains(&target.name), "{} is not replayed", target.name);
                assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}: not in proof/fuzz/Cargo.toml", target.name);
            }
            assert_eq!(replayed.len(), TARGETS.len());
        }
    };
}

replays! {
    iscsi_frames iscsi_text iscsi_login iscsi_chap iscsi_session scsi_commands scsi_lists nbd_negotiation nbd_connection
    drive_label catalog pool_journal pool_image packed_block rest_bodies config_file
}

#[test]
fn inputs_are_small() {
    let mut bytes = 0;
    for target in TARGETS {
        for (path, input) in inputs(target) {
            assert!(input.len() <= 64 << 10, "{path} is too long");
            bytes += input.len() as u64;
        }
    }
    assert!(bytes < MOST_BYTES, "{bytes} bytes of inputs: minimise them");
}
