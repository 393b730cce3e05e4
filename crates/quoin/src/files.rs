//! How many files and sockets the process may have open, and how they are shared out.
//!
//! Promises: each front end and the management interface keep to a share of their own, and the shares together leave
//! what the array itself needs, so that no flood of connections to one takes descriptors from another.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// The descriptors that the process itself needs: for its log, rings, listeners, lock and files it reads.
const OWN: usize = 160;
/// A drive's file, and one more while it is opened again.
const FOR_A_DRIVE: usize = 2;
/// The most connections, however many files the process may have open.
const ISCSI_MOST: usize = 1024;
const NBD_MOST: usize = 1024;
const MANAGEMENT_MOST: usize = 256;
/// A connection that makes room for another may still be open for a moment.
const CLOSING: usize = 64;

/// How many connections each interface may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) iscsi: usize,
    pub(crate) nbd: usize,
    pub(crate) management: usize,
}

impl Shares {
    /// The shares of `limit` descriptors in an array with `drives` drives.
    fn of(limit: usize, drives: usize) -> Self {
        let left = limit.saturating_sub(own(drives));
        // An eighth for management, and half of the rest for each front end.
        let management = (left / 8).clamp(1, MANAGEMENT_MOST);
        let front_end = left.saturating_sub(management) / 2;
        let nbd = front_end.clamp(1, NBD_MOST);
        Self { iscsi: front_end.clamp(1, ISCSI_MOST), nbd, management }
    }

    fn is_full(self) -> bool {
        self.iscsi == ISCSI_MOST && self.nbd == NBD_MOST && self.management == MANAGEMENT_MOST
    }
}

fn own(drives: usize) -> usize {
    OWN + CLOSING + drives * FOR_A_DRIVE
}

/// The number of descriptors that allows every share its maximum.
fn enough(drives: usize) -> usize {
    own(drives) + (ISCSI_MOST + NBD_MOST + MANAGEMENT_MOST)
}

/// Raises the soft limit of open files to the hard one, and shares it out. Logs a warning if it is too low.
pub(crate) fn share_out(drives: usize) -> Shares {
    let before = getrlimit(Resource::Nofile);
    if before.current != before.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before })
    {
        tracing::warn!(error = %io::Error::from(error), "soft limit of open files not raised");
    }
    // None is no limit.
    let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
    let shares = Shares::of(limit, drives);
    let Shares { iscsi, nbd, management } = shares;
    if shares.is_full() {
        tracing::info!(limit, iscsi, nbd, management, "connections that fit the limit of open files");
    } else {
        tracing::warn!(
            limit,
            iscsi,
            nbd,
            management,
            "the hard limit of open files allows fewer connections than the array serves; raise it to {} or more: \
             LimitNOFILE in a unit of systemd, ulimit -Hn in a shell",
            enough(drives)
        );
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_the_limit_and_leave_what_the_array_needs() {
        for (limit, drives) in [(320, 1), (1024, 4), (2048, 64), (4096, 4), (524_288, 1024), (usize::MAX, 1)]
        {
            let shares = Shares::of(limit, drives);
            let all = own(drives) + shares.iscsi + shares.nbd + shares.management;
            assert!(all <= limit, "{limit} {shares:?}");
            assert_eq!(shares.is_full(), limit >= enough(drives), "{limit} {shares:?}");
        }
        assert!(Shares::of(enough(7), 7).is_full());
        assert_eq!(Shares::of(0, 1), Shares { iscsi: 1, nbd: 1, management: 1 }, "it says so and tries");
    }
}
