//! The volume that the nodes of a cluster share: PostgreSQL's data directory in a file system. It is made here, where
//! that takes a second, and not in the guest.

use crate::{array::Array, postgres, process::run};
use anyhow::{Context, Result};
use std::{fs::File, os::unix::fs::PermissionsExt, path::Path};

const NAME: &str = "database";
/// What `guest/cluster.sh` expects.
const LUN: u32 = 3;
const BYTES: u64 = 80 << 20;
/// Segments of the log are small, so that the file system is.
const SETTINGS: &str = "
listen_addresses = ''
max_connections = 20
shared_buffers = 16MB
max_wal_size = 16MB
";

/// Makes the volume, and shows it to the trial's host. Returns where PostgreSQL's programs are.
pub(crate) fn make(array: &Array, work: &Path) -> Result<String> {
    let (tree, image) = (work.join("database"), work.join("database.ext4"));
    make_cluster(work, &tree)?;
    File::create(&image)?.set_len(BYTES)?;
    let (tree, image) = (tree.display().to_string(), image.display().to_string());
    run(&["mkfs.ext4", "-q", "-b", "4096", "-d", &tree, &image])?;
    array.tell(&["volume", "create", NAME, "--size", &BYTES.to_string()])?;
    array.tell(&["export", "create", NAME])?;
    run(&["nbdcopy", &image, &export(array)])?;
    array.map(NAME, LUN)?;
    Ok(postgres::programs()?.display().to_string())
}

/// A checksum of the whole volume, as the array itself shows it.
pub(crate) fn checksum(array: &Array, work: &Path) -> Result<String> {
    let copy = work.join("database.copy").display().to_string();
    run(&["nbdcopy", &export(array), &copy])?;
    run(&["sha256sum", &copy])
}

fn export(array: &Array) -> String {
    format!("nbd+unix:///{NAME}?socket={}", array.nbd_socket().display())
}

/// `initdb` in the directory `pg` of `tree`; it refuses to run as root.
fn make_cluster(work: &Path, tree: &Path) -> Result<()> {
    std::fs::create_dir(tree)?;
    let data = tree.join("pg");
    let shown = data.display().to_string();
    let initdb = postgres::programs()?.join("initdb").display().to_string();
    let how = ["-D", &shown, "-k", "-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8"];
    let fast = ["--no-sync", "--wal-segsize=1"];
    let command = [&[initdb.as_str()][..], &how, &fast].concat();
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(work, std::fs::Permissions::from_mode(0o755))?;
        run(&["chown", "postgres:", &tree.display().to_string()])?;
        run(&[&["setpriv"][..], &postgres::AS_POSTGRES, &["--"], &command].concat())?;
    } else {
        run(&command)?;
    }
    let configuration = data.join("postgresql.conf");
    let defaults = std::fs::read_to_string(&configuration).context("what initdb made")?;
    Ok(std::fs::write(&configuration, defaults + SETTINGS)?)
}
