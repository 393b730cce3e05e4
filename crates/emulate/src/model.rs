//! The model of service times and of the queue: when an operation completes that is submitted now.
//!
//! Nothing is simulated step by step: an operation's completion follows from a few moments at which parts of the drive are
//! free again, all known when the operation is submitted. So the model takes no time of its own and no CPU.
//!
//! **Flash** works on several operations at once. By Little's law those are rate × latency *channels*, rounded up; each is
//! busy for channels / rate with an operation, and the operation's data then crosses one *link* of so many bytes a second.
//! Example: 75,000 a second of 100 µs are 8 channels, busy for 106.7 µs each time. One operation at a time takes 100 µs;
//! 8 at a time take 106.7 µs, which is 75,000 a second; 16 at a time take twice as long.
//!
//! **Disks that rotate** have one channel, the head. A random operation takes positioning (seek and half a turn; 1 / rate
//! in all) and the transfer. One that begins where the last one ended takes the transfer alone, provided that
//!
//! 1. the last one is still under way: the head goes on without losing a turn; or
//! 2. it came soon after, and need not be durable: the drive has read on into its buffer, or takes the write into it. A
//!    durable write that comes after the last one has ended waits for the platter to come round again.
//!
//! Latency and rate are those of 4 KiB: what they take for the transfer is not counted twice.

use crate::Emulation;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Rate and latency are those of operations of so many bytes.
const REFERENCE_BYTES: u64 = 4096;
/// More channels than this are not modelled; the rate is right with fewer, too.
const MOST_CHANNELS: u64 = 1024;
/// What takes no access to the medium takes this part of the latency.
const SMALL_PART: u64 = 10;
const NS_PER_S: u64 = 1_000_000_000;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A read or write.
    Transfer {
        offset: u64,
        len: u64,
        durable: bool,
    },
    Flush,
    Discard,
}

/// The state of the model. Times are nanoseconds of the world's clock.
#[derive(Debug)]
pub(crate) struct Model {
    rotates: bool,
    /// From the start of a random operation to its completion, without the transfer.
    latency_ns: u64,
    /// How long a random operation takes its channel, on a rotating drive without the transfer.
    occupancy_ns: u64,
    /// How soon after the last operation the next one counts as following it.
    follows_within_ns: u64,
    /// 10^6 bytes a second.
    mbps: u64,
    /// When each channel is free.
    free_at: BinaryHeap<Reverse<u64>>,
    /// When the link of flash is free.
    link_free_at: u64,
    /// The first byte after the last transfer.
    last_end: Option<u64>,
}

impl Model {
    pub(crate) fn new(emulation: &Emulation) -> Self {
        let (iops, mbps) = (u64::from(emulation.iops()), u64::from(emulation.mbps()));
        let latency_ns = emulation.latency().duration().as_nanos() as u64;
        let rotates = emulation.technology.rotates();
        let channels =
            if rotates { 1 } else { (iops * latency_ns).div_ceil(NS_PER_S).clamp(1, MOST_CHANNELS) };
        let reference_ns = transfer_ns(REFERENCE_BYTES, mbps);
        let occupancy_ns = channels * NS_PER_S / iops;
        Self {
            rotates,
            latency_ns: latency_ns.saturating_sub(reference_ns),
            occupancy_ns: if rotates { occupancy_ns.saturating_sub(reference_ns) } else { occupancy_ns },
            follows_within_ns: NS_PER_S / iops,
            mbps,
            free_at: (0..channels).map(|_| Reverse(0)).collect(),
            link_free_at: 0,
            last_end: None,
        }
    }

    /// When `work` completes that is submitted now. All that it takes is multiplied by `slowness`.
    pub(crate) fn admit(&mut self, now: u64, work: Work, slowness: u32) -> u64 {
        let slowness = u64::from(slowness);
        let (latency_ns, occupancy_ns) = (self.latency_ns * slowness, self.occupancy_ns * slowness);
        let (offset, len, durable) = match work {
            Work::Transfer { offset, len, durable } => (offset, len, durable),
            // The medium is one access away from holding what was written before.
            Work::Flush if self.rotates => return self.position(now, latency_ns, occupancy_ns, 0),
            Work::Flush | Work::Discard => return now + latency_ns / SMALL_PART,
        };
        let transfer_ns = transfer_ns(len, self.mbps) * slowness;
        let follows = self.last_end.replace(offset + len) == Some(offset);
        if !self.rotates {
            return self.through_link(now, latency_ns, occupancy_ns, transfer_ns);
        }
        let free_at = self.free_at.peek().map_or(0, |first| first.0);
        let (is_queued, is_soon) = (now < free_at, now <= free_at + self.follows_within_ns * slowness);
        if follows && (is_queued || (is_soon && !durable)) {
            // NOTE: from where the last one ended, not from now: the platter has turned on meanwhile.
            let done = now.max(free_at + transfer_ns);
            self.take_channel(free_at + transfer_ns);
            return done;
        }
        self.position(now, latency_ns, occupancy_ns, transfer_ns)
    }

    /// A random operation on the next free channel.
    fn position(&mut self, now: u64, latency_ns: u64, occupancy_ns: u64, transfer_ns: u64) -> u64 {
        let start = self.start(now);
        self.take_channel(start + occupancy_ns + transfer_ns);
        start + latency_ns + transfer_ns
    }

    fn through_link(&mut self, now: u64, latency_ns: u64, occupancy_ns: u64, transfer_ns: u64) -> u64 {
        let start = self.start(now);
        self.take_channel(start + occupancy_ns);
        self.link_free_at = (start + latency_ns).max(self.link_free_at) + transfer_ns;
        self.link_free_at
    }

    fn start(&self, now: u64) -> u64 {
        self.free_at.peek().map_or(now, |first| first.0.max(now))
    }

    /// Keeps the channel that is free first until `until`.
    fn take_channel(&mut self, until: u64) {
        self.free_at.pop();
        self.free_at.push(Reverse(until));
    }
}

/// How long `len` bytes take.
fn transfer_ns(len: u64, mbps: u64) -> u64 {
    len * 1000 / mbps
}
