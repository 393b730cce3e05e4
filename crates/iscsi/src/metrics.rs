//! Counters of the front end.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the server was made.
        #[derive(Default, Debug)]
        pub struct Metrics {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// The values of [`Metrics`] at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct MetricsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Metrics {
            /// The values now.
            pub fn snapshot(&self) -> MetricsSnapshot {
                MetricsSnapshot { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            /// Adds what a session counted by itself.
            pub(crate) fn add(&self, counted: &mut MetricsSnapshot) {
                $(if counted.$name > 0 { self.$name.fetch_add(counted.$name, Ordering::Relaxed); })*
                *counted = MetricsSnapshot::default();
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections refused because there were too many.
    connections_refused,
    /// Logins that reached the full feature phase.
    logins,
    /// Logins refused or not completed in time.
    logins_failed,
    /// Logins refused because the initiator did not prove who it is.
    authentications_failed,
    /// SCSI commands received.
    commands,
    /// SCSI commands answered with another status than GOOD.
    failures,
    /// SCSI commands that were run and answered.
    answered,
    /// From their arrival to their answers' being queued, all of them together, in nanoseconds.
    latency_ns,
    /// Bytes of data sent to initiators.
    read_bytes,
    /// Bytes of data received from initiators.
    written_bytes,
    /// Task management requests received.
    task_requests,
    /// Reject PDUs sent.
    rejects,
    /// Connections ended because nothing was heard of the initiator, answers to pings included.
    silent,
    /// Connections ended because the initiator did not take its answers or did not send data that was due.
    stalled,
    /// Digests that did not match.
    digest_errors,
}
