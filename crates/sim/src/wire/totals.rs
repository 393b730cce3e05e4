//! What seeds of the front ends exercised, in figures.

use std::fmt;

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was exercised, summed over seeds.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct WireTotals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl WireTotals {
            /// Adds another's figures.
            pub fn add(&mut self, other: &WireTotals) {
                $(self.$name += other.$name;)*
            }

            fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

totals! {
    /// Seeds run to their end.
    seeds,
    /// Times the array was started.
    boots,
    /// Boots in which the power was cut or the process killed.
    crashes,
    /// Connections.
    connections,
    /// Connections cut in the middle.
    cuts,
    /// iSCSI logins.
    logins,
    /// Logins that replaced a session or its connection.
    reinstatements,
    /// Logins refused because the session they named is gone.
    refused_logins,
    /// iSCSI sessions logged out of.
    logouts,
    /// NBD connections negotiated.
    negotiations,
    /// NBD connections ended with a disconnect.
    disconnects,
    /// Writes and unmaps acknowledged.
    writes,
    /// Reads compared with the model.
    reads,
    /// Data-Out PDUs sent because they were asked for.
    solicited,
    /// Data-Out PDUs sent unasked.
    unsolicited,
    /// Tasks that ABORT TASK ended.
    aborted,
    /// Tasks that resets and ABORT TASK SET ended.
    reset,
    /// Aborts of a task that had ended.
    aborted_too_late,
    /// Tasks that another host's reset ended.
    reset_by_others,
    /// Unit attentions.
    attentions,
    /// Pings of the array answered.
    pings,
    /// Writes that nobody answered before their connection was lost.
    unanswered,
    /// Writes refused for lack of space.
    refused_full,
    /// Steps of the simulation.
    steps,
}

impl WireTotals {
    /// What was never exercised and should have been: the harness has lost its grip on it.
    pub fn missing(&self) -> Vec<&'static str> {
        let rare = ["pings", "refused_full"];
        let zero = |(name, count): &(&'static str, u64)| *count == 0 && !rare.contains(name);
        self.each().into_iter().filter(zero).map(|(name, _)| name).collect()
    }
}

impl fmt::Display for WireTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.each() {
            writeln!(f, "  {:<24}{count:>12}", name.replace('_', " "))?;
        }
        Ok(())
    }
}
