//! Clears what a trial left behind that was itself killed by `SIGKILL`: the processes it had started die with
//! it, but not their children, mounts and loop devices.

use crate::process::{is_running, run};
use anyhow::Result;
use rustix::process::{Pid, Signal};
use std::path::Path;

/// Work directories are this followed by the process id of their trial.
pub(crate) const WORK_PREFIX: &str = "/var/tmp/quoin-trial-";

/// Takes down what is in use of work directories whose trial does not run any more.
pub(crate) fn leftovers() -> Result<()> {
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let working_directory = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if let Some(pid) = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?))
            && is_orphaned(&working_directory)
        {
            println!("killing process {} of a trial that was killed", pid.as_raw_nonzero());
            rustix::process::kill_process(pid, Signal::KILL)?;
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let mounts: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let loops = run(&["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"])?;
    let loops = loops.lines().filter_map(|line| line.split_once(' '));
    for (device, _) in loops.filter(|(_, file)| is_orphaned(Path::new(file.trim()))) {
        println!("detaching {device} of a trial that was killed");
        run(&["umount", "-l", device]).ok();
        run(&["losetup", "-d", device])?;
    }
    for mount in mounts.into_iter().rev().filter(|path| is_orphaned(Path::new(path))) {
        println!("unmounting {mount} of a trial that was killed");
        run(&["umount", "-l", mount]).ok();
    }
    Ok(())
}

fn is_orphaned(path: &Path) -> bool {
    let pid = path.to_str().and_then(|path| path.strip_prefix(WORK_PREFIX)?.split('/').next()?.parse().ok());
    pid.and_then(Pid::from_raw).is_some_and(|pid| !is_running(pid))
}
