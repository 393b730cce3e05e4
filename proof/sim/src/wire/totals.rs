//! What seeds of the front ends exercised, in figures.

crate::figures! {
    /// What was exercised, summed over seeds.
    pub WireTotals, rare: [pings, refused_full], {
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
}
