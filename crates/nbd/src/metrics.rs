//! Counters of the front end.

use quoin_base::metrics::Counter;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the server was made.
        #[derive(Default, Debug)]
        pub struct Metrics {
            $(pub(crate) $name: Counter,)*
        }

        /// The values of [`Metrics`] at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct MetricsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Metrics {
            /// The values now.
            pub fn snapshot(&self) -> MetricsSnapshot {
                MetricsSnapshot { $($name: self.$name.value(),)* }
            }

            /// Adds what a session counted by itself.
            pub(crate) fn add(&self, counted: &mut MetricsSnapshot) {
                $(if counted.$name > 0 { self.$name.add(counted.$name); })*
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
    /// Negotiations that ended in transmission.
    negotiations,
    /// Negotiations that failed or took too long.
    negotiations_failed,
    /// Requests received.
    requests,
    /// Requests answered with an error.
    errors,
    /// Bytes of data sent to clients; holes are not.
    read_bytes,
    /// Bytes of data received from clients.
    written_bytes,
    /// Connections that ended because the client broke the protocol.
    protocol_errors,
}
