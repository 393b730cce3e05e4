//! Time slices of threads.
//!
//! A thread for which hosts wait asks the kernel for short slices. Where other threads want the same core, it then runs soon
//! after it wakes up, and altogether gets no more of the core than before. Kernels before 6.12 take no notice.

use std::{io, mem};

/// The shortest slice that the kernel takes. By default slices last a few milliseconds.
const SHORT_NS: u64 = 100_000;

/// Has the kernel give this thread short slices. A thread with a real-time or another special policy keeps what it has.
///
/// # Errors
/// The kernel refuses: slices are as long as others'.
pub(crate) fn ask_for_short_slices() -> io::Result<()> {
    let (this_thread, no_flags): (libc::pid_t, libc::c_uint) = (0, 0);
    let size = mem::size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: all fields are integers, for which zero is a value.
    let mut attr: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes to `attr`, which outlives the call.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut attr, size, no_flags) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attr.sched_runtime = SHORT_NS;
    // SAFETY: the kernel reads `attr`, which says how long it is and outlives the call.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attr, no_flags) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_ask_for_short_slices_and_keeps_its_priority() {
        rustix::process::setpriority_process(None, 3).unwrap();
        ask_for_short_slices().unwrap();
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), 3);
    }
}
