//! Forks: a target holds what the source held at one moment of the fork.

use super::{Entry, Fork, History, NEVER, outdate};

impl History {
    /// Volumes are about to be forked, each pair source and target. Targets are new or, if they are `there`, have the
    /// same windows.
    pub fn begin_fork(&mut self, volumes: &[(u32, u32)], there: &[u32]) -> usize {
        let begun = self.begin_read();
        for &(source, target) in volumes {
            if !there.contains(&target) {
                // An id that was given out before a crash and came to nothing is given out again.
                self.add_volume(target, &self.windows(source));
            }
        }
        let volumes = volumes.to_vec();
        self.forks.push(Fork { volumes, begun, under_way: true, after: 0, before: NEVER });
        self.forks.len() - 1
    }

    /// A fork surely had no effect.
    pub fn cancel_fork(&mut self, id: usize) {
        self.forks[id].under_way = false;
        self.read_failed(self.forks[id].begun);
    }

    /// A fork was acknowledged; or it may have taken effect or not. A target holds what a read of the source, as long as
    /// the fork took, may have returned.
    pub fn end_fork(&mut self, id: usize, acknowledged: bool) {
        let now = self.tick();
        let Fork { volumes, begun, .. } = self.forks[id].clone();
        for (source, target) in volumes {
            let Some(from) = self.volumes.get(&source).map(|volume| volume.windows.clone()) else { continue };
            let Some(to) = self.volumes.get_mut(&target) else { continue };
            for ((_, from), (_, to)) in from.into_iter().zip(&mut to.windows) {
                for (mut from, to) in from.into_iter().zip(to) {
                    let was_settled = from.entries.is_empty();
                    from.open(&self.ops).retain(|entry| entry.outdated > begun);
                    for entry in &mut from.entries {
                        if !was_settled {
                            entry.before = (entry.begun, if entry.doubt { NEVER } else { entry.ended });
                        }
                        (entry.begun, entry.ended, entry.outdated) = (begun, now, NEVER);
                        (entry.doubt, entry.fork) = (true, id as u32);
                    }
                    if acknowledged {
                        outdate(to.open(&self.ops), now, |e| e.ended < begun);
                        let only = from.entries.len() == 1;
                        from.entries.iter_mut().for_each(|entry| entry.doubt = !only);
                    }
                    for entry in from.entries {
                        let same = |e: &&mut Entry| e.op == entry.op && e.outdated == NEVER;
                        match to.open(&self.ops).iter_mut().find(same) {
                            // By which fork it came is not to be told any more.
                            Some(there) => there.fork = 0,
                            None => to.entries.push(entry),
                        }
                    }
                }
            }
        }
        self.cancel_fork(id);
        let oldest_read = self.oldest_read();
        let targets = self.forks[id].volumes.iter().map(|(_, target)| *target).collect::<Vec<_>>();
        for target in targets {
            let windows = self.volumes.get_mut(&target).into_iter().flat_map(|volume| &mut volume.windows);
            windows.flat_map(|(_, sectors)| sectors).for_each(|sector| sector.tidy(oldest_read));
        }
    }

    /// Seeing a write in a fork, and not others that came later, tells when the fork was. It was at one moment.
    pub(super) fn place_fork(&mut self, seen: &Entry, dying: &[Entry]) -> Result<(), String> {
        if seen.fork == 0 {
            return Ok(());
        }
        let missing = dying.iter().filter(|entry| entry.fork == seen.fork && entry.before.0 > seen.before.1);
        let before = missing.map(|entry| entry.before.1).min().unwrap_or(NEVER);
        let fork = &mut self.forks[seen.fork as usize];
        (fork.after, fork.before) = (fork.after.max(seen.before.0), fork.before.min(before));
        if fork.after < fork.before {
            Ok(())
        } else {
            Err(format!(
                "a fork holds a write begun at {} and none of another that ended at {}: {fork:?}",
                fork.after, fork.before
            ))
        }
    }
}
