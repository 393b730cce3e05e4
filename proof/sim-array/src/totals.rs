//! What seeds exercised, in figures.

quoin_sim::figures! {
    /// What was exercised, summed over seeds.
    pub Totals, rare: [refused_full, doubtful_dropped, refused_changes, failed_copies, emptied_early, reserves_unconfirmed], {
        /// Seeds run to their end.
        seeds,
        /// Times the array was started.
        boots,
        /// Boots in which the power was cut.
        power_cuts,
        /// Boots in which the process was killed.
        kills,
        /// Times the array was stopped cleanly.
        stops,
        /// Steps of the simulation.
        steps,
        /// Disk operations.
        disk_ops,
        /// Writes of hosts that were acknowledged.
        writes,
        /// Reads of hosts that were compared with the model.
        reads,
        /// Unmaps of hosts that were acknowledged.
        unmaps,
        /// Writes that waited for a restore or refresh and were refused.
        refused_replaced,
        /// Writes that were refused since the volume takes none.
        refused_read_only,
        /// Writes and unmaps refused for lack of space.
        refused_full,
        /// Reads of content that must never change.
        reads_of_frozen,
        /// Changes of management that were acknowledged.
        changes,
        /// Changes that were refused.
        refused_changes,
        /// Changes cut off by a crash that had taken effect.
        doubtful_applied,
        /// Changes cut off by a crash that had not.
        doubtful_dropped,
        /// Volumes created.
        created,
        /// Volumes, snapshots and clones deleted.
        deleted,
        /// Of them, into the recycle bin.
        discarded,
        /// Deleted volumes that were restored.
        recovered,
        /// Deleted volumes that were deleted for good.
        purged,
        /// Deleted volumes that the array deleted for good since it needed the space.
        emptied_early,
        /// Volumes grown.
        grown,
        /// Volumes shrunk.
        shrunk,
        /// Volumes made thick.
        thickened,
        /// Volumes renamed.
        renamed,
        /// Volumes made templates.
        templates,
        /// Snapshots made immutable.
        retained,
        /// Snapshots taken.
        snapshots,
        /// Clones made.
        clones,
        /// Volumes restored.
        restored,
        /// Restores that kept what was there before.
        kept,
        /// Snapshots and clones refreshed.
        refreshed,
        /// Snapshots and clones promoted.
        promoted,
        /// Sets of snapshots of groups taken.
        sets,
        /// Groups restored.
        groups_restored,
        /// Snapshots that schedules took.
        scheduled,
        /// Snapshot reserves set.
        reserves,
        /// Those refused since what they do at once was not confirmed.
        reserves_unconfirmed,
        /// Snapshots that reserves deleted.
        deleted_by_reserve,
        /// Times a volume was seen stopped by one, and its I/O refused.
        reserves_stopped,
        /// Writes and unmaps refused since the volume was stopped.
        refused_stopped,
        /// Range copies done.
        copies,
        /// Range copies refused, or ended for want of space.
        failed_copies,
        /// Bytes of them.
        copied_bytes,
        /// Volumes mapped.
        mapped,
        /// Scrubs begun.
        scrubs,
        /// Scrubs that were seen to end.
        scrubs_ended,
        /// Offline checks of the drives.
        checks,
    }
}
