//! Huge pages for the buffers of large transfers, and for nothing else.
//!
//! The kernel zeroes a huge page whole when it is first touched, which holds up a thread for milliseconds in a virtual machine. So
//! a thread of its own touches all of them at the start, and the rest of the process has ordinary pages.

use bytes::BytesMut;
use quoin_world::{HUGE_PAGE_BYTES, add_huge_pages};
use rustix::mm::{Advice, madvise};
use std::{fs, io, thread};

/// Not in `libc` yet: huge pages stay with memory for which they were asked.
const PR_THP_DISABLE_EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// Whether and for what a process gets huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePages {
    /// For what asks for them: for buffers.
    Advised,
    /// For nothing: this kernel (before Linux 6.18) would give them to all memory if it gave any.
    Disabled,
    /// For nothing: the system gives none.
    Never,
}

/// Sees to it that no memory has huge pages but what asks for them.
///
/// # Errors
/// The kernel would give them to all memory and refuses to be told otherwise.
pub fn limit_huge_pages() -> io::Result<HugePages> {
    let disable_but = |flags: libc::c_ulong| {
        let (none, on): (libc::c_ulong, libc::c_ulong) = (0, 1);
        // SAFETY: this operation of prctl takes numbers only, and changes nothing but which pages memory gets from now on.
        match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, flags, none, none) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let setting = setting();
    // NOTE: told to the kernel whatever the setting is, which can change while the process runs.
    let is_limited = disable_but(PR_THP_DISABLE_EXCEPT_ADVISED).is_ok();
    match setting.as_str() {
        "never" => Ok(HugePages::Never),
        "madvise" => Ok(HugePages::Advised),
        _ if is_limited => Ok(HugePages::Advised),
        _ => disable_but(0).map(|()| HugePages::Disabled),
    }
}

/// To whom the system gives huge pages: `always`, `madvise` or `never`; empty if it does not say.
fn setting() -> String {
    let choices = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = choices.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or("", |(chosen, _)| chosen).to_owned()
}

/// Sets `bytes` aside for buffers of large transfers, in whole huge pages as far as the system has them. Returns before they are
/// there: until then buffers have ordinary pages.
///
/// # Errors
/// The system gives no thread to do it.
pub fn reserve_huge_pages(bytes: usize) -> io::Result<()> {
    let count = bytes / HUGE_PAGE_BYTES;
    if count > 0 {
        thread::Builder::new().name("huge-pages".into()).spawn(move || add_huge_pages(touched(count)))?;
    }
    Ok(())
}

/// Memory of so many huge pages, aligned and zeroed.
fn touched(count: usize) -> BytesMut {
    let len = count * HUGE_PAGE_BYTES;
    // The system gives zeroed memory that takes no RAM before it is touched. What lies before and behind never is.
    let mut memory = BytesMut::zeroed(len + HUGE_PAGE_BYTES);
    let mut memory = memory.split_off(memory.as_ptr().align_offset(HUGE_PAGE_BYTES));
    memory.truncate(len);
    // SAFETY: the range lies in memory that `memory` owns. The advice changes which pages are behind it, not what it holds.
    // Where the system has no huge pages it refuses, and the memory is ordinary.
    let _ = unsafe { madvise(memory.as_mut_ptr().cast(), len, Advice::LinuxHugepage) };
    memory.fill(0);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_is_aligned_and_in_huge_pages_if_the_system_has_them() {
        let setting = setting();
        let limited = limit_huge_pages().unwrap();
        let memory = touched(3);
        assert!(memory.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
        assert!(memory.len() == 3 * HUGE_PAGE_BYTES && memory.iter().all(|byte| *byte == 0));
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let kib_of = |line: &str| {
            line.strip_prefix("AnonHugePages:")?.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
        };
        let huge_kib: usize = smaps.lines().filter_map(kib_of).sum();
        // The system may be short of them.
        assert!(
            limited == HugePages::Advised || huge_kib == 0,
            "{huge_kib} KiB with {limited:?} and {setting}"
        );
        assert!(huge_kib <= 3 * HUGE_PAGE_BYTES / 1024, "{huge_kib} KiB: other memory has huge pages");
    }
}
