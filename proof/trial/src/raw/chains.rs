//! Writers whose order is known: each sends a write once the one before was acknowledged, to any of the volumes, on a
//! session for each. A snapshot of all volumes at one moment holds, of each writer, its first so many writes and none
//! of the others; and whatever a write in it may have depended on, because it had been acknowledged when that write was
//! sent, is in it too.

use super::stamp::{BLOCK_BYTES, Write, stamp};
use anyhow::{Context, Result};
use quoin_initiator::{Disk, Endpoint, Rng};
use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

/// Writers at once.
pub(crate) const CHAINS: usize = 4;

/// Tells sessions of this process apart.
static SESSIONS: AtomicU16 = AtomicU16::new(1);

/// Opens a session nobody else has.
pub(crate) fn open(endpoint: &Endpoint) -> Result<Disk> {
    Disk::open(endpoint, SESSIONS.fetch_add(1, SeqCst))
}

/// One write of a chain.
#[derive(Debug, Clone)]
struct Link {
    volume: usize,
    block: usize,
    write: Write,
    /// How many of each chain had been acknowledged when it was sent.
    seen: [usize; CHAINS],
}

#[derive(Debug, Default)]
struct Chain {
    sent: Mutex<Vec<Link>>,
    acknowledged: AtomicUsize,
}

/// What a volume holds, block by block.
pub(crate) type Content = Vec<Write>;

/// How many writes of each chain.
pub(crate) type Counts = [usize; CHAINS];

/// Writers at work, and what they did.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    chains: [Chain; CHAINS],
    stop: AtomicBool,
}

impl Chains {
    /// Lets all writers work until [`Self::stop`], or until the array is gone, which the caller has to judge.
    pub(crate) fn run(&self, volumes: &[(Endpoint, usize)], next: &AtomicU64, seed: u64) -> Result<()> {
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..CHAINS)
                .map(|chain| scope.spawn(move || self.write(chain, volumes, next, seed)))
                .collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("a writer panicked"))
        })
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    pub(crate) fn acknowledged(&self) -> Counts {
        std::array::from_fn(|chain| self.chains[chain].acknowledged.load(SeqCst))
    }

    pub(crate) fn sent(&self) -> Counts {
        std::array::from_fn(|chain| self.chains[chain].sent.lock().expect("no writer panics").len())
    }

    fn write(&self, number: usize, volumes: &[(Endpoint, usize)], next: &AtomicU64, seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed ^ (number as u64) << 56);
        let disks = volumes.iter().map(|(endpoint, _)| open(endpoint));
        let mut disks = disks.collect::<Result<Vec<_>>>()?;
        let mut data = vec![0; BLOCK_BYTES];
        let chain = &self.chains[number];
        while !self.stop.load(SeqCst) {
            let volume = rng.below(volumes.len() as u64) as usize;
            // Its own blocks only. Two chains share each block of the engine.
            let block = rng.below((volumes[volume].1 / CHAINS) as u64) as usize * CHAINS + number;
            let link = Link { volume, block, write: next.fetch_add(1, SeqCst), seen: self.acknowledged() };
            stamp(link.write, block as u64, &mut data);
            chain.sent.lock().expect("no writer panics").push(link);
            disks[volume].write((block * BLOCK_BYTES) as u64, &mut data)?;
            chain.acknowledged.fetch_add(1, SeqCst);
        }
        disks.into_iter().try_for_each(Disk::close).context("logging out")
    }

    /// Lets what came after so many writes of each chain take effect.
    pub(crate) fn apply_from(&self, counts: &Counts, contents: &mut [Content]) {
        for (chain, count) in self.chains.iter().zip(counts) {
            for link in &chain.sent.lock().expect("no writer panics")[*count..] {
                contents[link.volume][link.block] = link.write;
            }
        }
    }

    /// Finds how many writes of each chain are in `found`, which was `base` before the writers began. It must be
    /// between `least` and `most`, and as all have promised to each other.
    pub(crate) fn moment(
        &self,
        base: &[Content],
        found: &[Content],
        least: &Counts,
        most: &Counts,
    ) -> Result<Counts, String> {
        let chains = self.chains.each_ref().map(|chain| chain.sent.lock().expect("no writer panics").clone());
        let index = chains.iter().enumerate().flat_map(|(chain, links)| {
            links.iter().enumerate().map(move |(index, link)| (link.write, (chain, index)))
        });
        let index: HashMap<Write, (usize, usize)> = index.collect();
        let mut counts = *least;
        for write in found.iter().flatten() {
            if let Some(&(chain, at)) = index.get(write) {
                counts[chain] = counts[chain].max(at + 1);
            }
        }
        let mut expected = base.to_vec();
        for (chain, links) in chains.iter().enumerate() {
            if counts[chain] > most[chain] {
                return Err(format!("it has a write of chain {chain} that was sent when it had been taken"));
            }
            for link in &links[..counts[chain]] {
                expected[link.volume][link.block] = link.write;
            }
        }
        for (volume, (expected, found)) in expected.iter().zip(found).enumerate() {
            super::objects::compare(expected, found).map_err(|what| {
                let place =
                    |write| index.get(&write).map_or(String::new(), |at| format!(" (chain, place {at:?})"));
                let (expected, found) = (place(expected[what.block]), place(found[what.block]));
                format!(
                    "member {volume}: {what}{found}, should have been{expected}; begins at {least:?}, is at \
                     {counts:?}, was done at {most:?}"
                )
            })?;
        }
        for (chain, links) in chains.iter().enumerate() {
            let last = counts[chain].checked_sub(1).map(|last| &links[last]);
            for (other, seen) in last.iter().flat_map(|link| link.seen.iter().enumerate()) {
                if counts[other] < *seen {
                    return Err(format!(
                        "it is not one moment: it has write {} of chain {chain}, sent after write {seen} of chain \
                         {other} was acknowledged, and only {} of that",
                        counts[chain], counts[other]
                    ));
                }
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two volumes of eight blocks; chain 0 writes 1, 3 and 5, chain 1 writes 2 and 4.
    fn chains() -> Chains {
        let link = |volume, block, write, seen: [usize; 2]| Link {
            volume,
            block,
            write,
            seen: [seen[0], seen[1], 0, 0],
        };
        let chains = Chains::default();
        *chains.chains[0].sent.lock().unwrap() =
            vec![link(0, 0, 1, [0, 0]), link(1, 0, 3, [1, 1]), link(0, 0, 5, [2, 1])];
        *chains.chains[1].sent.lock().unwrap() = vec![link(1, 1, 2, [1, 0]), link(0, 1, 4, [2, 1])];
        chains
    }

    fn content(blocks: &[(usize, Write)]) -> Content {
        let mut content = vec![0; 8];
        blocks.iter().for_each(|&(block, write)| content[block] = write);
        content
    }

    #[test]
    fn only_what_was_one_moment_is_taken_for_one() {
        let chains = chains();
        let base = [content(&[(7, 99)]), content(&[])];
        let moment = |first: &[(usize, Write)], second: &[(usize, Write)], least: [usize; 2]| {
            let found = [content(&[&[(7, 99)], first].concat()), content(second)];
            chains.moment(&base, &found, &[least[0], least[1], 0, 0], &[3, 2, 0, 0])
        };
        assert_eq!(moment(&[], &[], [0, 0]), Ok([0, 0, 0, 0]));
        assert_eq!(moment(&[(0, 5), (1, 4)], &[(0, 3), (1, 2)], [2, 1]), Ok([3, 2, 0, 0]));
        assert_eq!(moment(&[(0, 1)], &[(1, 2)], [1, 0]), Ok([1, 1, 0, 0]));
        assert!(
            moment(&[(0, 1)], &[(1, 2)], [2, 0]).unwrap_err().contains("member 1"),
            "an acknowledged write lost"
        );
        assert!(moment(&[(0, 5)], &[(1, 2)], [0, 0]).unwrap_err().contains("member 1"), "a write left out");
        assert!(moment(&[(0, 1)], &[(0, 3)], [0, 0]).unwrap_err().contains("not one moment"));
        assert!(moment(&[], &[(1, 2)], [0, 0]).unwrap_err().contains("not one moment"));
        let found = [content(&[(7, 99), (0, 1)]), content(&[])];
        assert!(chains.moment(&base, &found, &[0; 4], &[0; 4]).unwrap_err().contains("had been taken"));
    }
}
