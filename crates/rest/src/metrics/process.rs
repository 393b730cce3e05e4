//! The process itself, as the kernel sees it.

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};
use std::{fs, sync::LazyLock};

/// When the process started. Read once: the kernel moves the boot with every step of the clock, and nothing else may look like
/// a restart.
static START_SECONDS: LazyLock<Option<f64>> = LazyLock::new(start_seconds);

/// The resources that the process uses now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) start_seconds: Option<f64>,
    pub(super) virtual_bytes: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) open_fds: Option<f64>,
    pub(super) max_fds: Option<f64>,
}

impl Process {
    /// Looks.
    pub(super) fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = statm.split(' ').map(|field| field.parse::<f64>().ok());
        let mut bytes = || Some(pages.next()?? * page_size() as f64);
        Self {
            start_seconds: *START_SECONDS,
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            virtual_bytes: bytes(),
            resident_bytes: bytes(),
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as f64),
            max_fds: getrlimit(Resource::Nofile).current.map(|limit| limit as f64),
        }
    }
}

/// When the process started: the boot of the system, and the ticks from there on (proc(5)).
fn start_seconds() -> Option<f64> {
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name in parentheses, which may hold anything; the 22nd is the start.
    let (_, behind) = own.rsplit_once(')')?;
    let ticks: f64 = behind.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(boot + ticks / clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn the_process_started_in_the_past_and_not_before_this_machine() {
        let start = start_seconds().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        assert!(start <= now + 1.0 && start >= now - uptime - 2.0, "{start} of {now}, up {uptime}");
    }
}
