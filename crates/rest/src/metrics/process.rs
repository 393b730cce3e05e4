//! The process itself, as the kernel sees it.

use rustix::{
    param::page_size,
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};
use std::fs;

/// What the process takes now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
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
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            virtual_bytes: bytes(),
            resident_bytes: bytes(),
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as f64),
            max_fds: getrlimit(Resource::Nofile).current.map(|limit| limit as f64),
        }
    }
}
