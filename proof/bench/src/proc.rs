//! What the kernel counts: CPU time, storage traffic and open flags of a process, and the machine's CPU time.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// Counters of a process, and the machine's, at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// User and system time of all threads, also of those that have ended.
    pub(crate) cpu_seconds: f64,
    /// Bytes the process had fetched from storage.
    pub(crate) read_bytes: u64,
    /// Bytes the process sent to storage or dirtied in the page cache.
    pub(crate) write_bytes: u64,
}

/// Reads `/proc/PID/stat` and `/proc/PID/io`.
pub(crate) fn usage(pid: u32) -> Result<Usage> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}; has process {pid} ended?"))
    };
    let ticks = cpu_ticks(&read("stat")?).with_context(|| format!("/proc/{pid}/stat is not understood"))?;
    let io = read("io").unwrap_or_default(); // another user's process hides it
    Ok(Usage {
        cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        read_bytes: io_field(&io, "read_bytes"),
        write_bytes: io_field(&io, "write_bytes"),
    })
}

/// `utime` + `stime`, fields 14 and 15 (proc(5)); the name in field 2 may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn io_field(io: &str, name: &str) -> u64 {
    io.lines()
        .filter_map(|line| line.split_once(": "))
        .find_map(|(key, value)| (key == name).then(|| value.parse().ok())?)
        .unwrap_or(0)
}

/// CPU seconds of this process, user and system.
pub(crate) fn own_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds for which the machine's CPUs were not idle, kernel threads and other processes included.
pub(crate) fn machine_busy_seconds() -> f64 {
    busy_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default()) as f64
        / rustix::param::clock_ticks_per_second() as f64
}

/// Seconds for which the hypervisor ran something else though this machine's CPUs had work.
pub(crate) fn stolen_seconds() -> f64 {
    field(&fs::read_to_string("/proc/stat").unwrap_or_default(), 8) as f64
        / rustix::param::clock_ticks_per_second() as f64
}

/// User, nice, system, irq, softirq of the first line (proc(5)).
fn busy_ticks(stat: &str) -> u64 {
    [1, 2, 3, 6, 7].map(|index| field(stat, index)).iter().sum()
}

/// A field of the first line, which is of all CPUs.
fn field(stat: &str, index: usize) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    line.split_ascii_whitespace().nth(index).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// The `open` flags with which a process holds a file, in the words of open(2): what it really asked of the kernel.
pub(crate) fn open_flags(pid: u32, file: &Path) -> Option<String> {
    let file = file.canonicalize().ok()?;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        if fs::read_link(entry.path()).ok().as_deref() == Some(&file) {
            let name = entry.file_name().into_string().ok()?;
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{name}")).ok()?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
            return Some(flag_names(u32::from_str_radix(flags.trim(), 8).ok()?));
        }
    }
    None
}

/// Values of asm-generic/fcntl.h.
fn flag_names(flags: u32) -> String {
    let mut names = vec!["O_RDWR"];
    if flags & 0o40000 != 0 {
        names.push("O_DIRECT");
    }
    match flags & 0o4_010_000 {
        0o4_010_000 => names.push("O_SYNC"),
        0o10000 => names.push("O_DSYNC"),
        _ => {}
    }
    names.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_whatever_the_process_is_called() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 1 0 100 0 0";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("garbage"), None);
        let io = "rchar: 9\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 1\n";
        assert_eq!(
            (io_field(io, "read_bytes"), io_field(io, "write_bytes"), io_field(io, "x")),
            (4096, 512, 0)
        );
        assert_eq!(busy_ticks("cpu  10 1 5 1000 50 2 3 99 0 0\ncpu0 1"), 21);
        assert!(usage(std::process::id()).is_ok());
        assert!(format!("{:#}", usage(u32::MAX).unwrap_err()).contains("has process"));
    }

    #[test]
    fn flags_are_named_as_in_the_manual() {
        assert_eq!(flag_names(0o4_150_002), "O_RDWR|O_DIRECT|O_SYNC");
        assert_eq!(flag_names(0o100_002), "O_RDWR");
    }
}
