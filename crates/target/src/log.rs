//! Log pages, and what is counted of commands for them and for the figures of the volume.

use crate::{Request, nexus::parameter_list};
use quoin_scsi::{
    Command, LogCounter, LogSelect, LogSense, Reply, Sense, SenseKey, Status, log_select, log_sense,
};
use quoin_volume::{BlockDevice, Operation};
use quoin_world::Slice;
use std::time::Duration;

/// What a command is to the log pages. UNMAP and commands about the unit are none of these.
enum Kind {
    Reads,
    Writes,
    Verifies,
}

impl Kind {
    fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Read(_) => Some(Self::Reads),
            Command::Verify(..) => Some(Self::Verifies),
            Command::Write(_)
            | Command::WriteAtomic(_)
            | Command::OrWrite(_)
            | Command::WriteAndVerify(..)
            | Command::CompareAndWrite(_)
            | Command::WriteSame { .. } => Some(Self::Writes),
            _ => None,
        }
    }
}

impl<D: BlockDevice> Request<D> {
    /// LOG SENSE.
    pub(crate) fn log_sense(&self, request: &LogSense) -> Reply {
        let (counts, thresholds) = (self.unit.state.counters.get(), self.unit.device.thresholds());
        match log_sense(request, &counts, thresholds) {
            Ok(data) => Reply::parameters(data, request.allocation),
            Err(sense) => Reply::check(sense),
        }
    }

    /// LOG SELECT.
    pub(crate) fn log_select(&self, request: &LogSelect, data: &[Slice]) -> Reply {
        let list = parameter_list(request.parameter_bytes.into(), data);
        let reset = list.and_then(|list| log_select(request, &list, self.unit.device.thresholds()));
        match reset {
            Ok(counters) => {
                counters.iter().for_each(|counter| self.unit.state.counters.reset(*counter));
                // The counters are the same for all sessions: the others learn of the change.
                if !counters.is_empty() {
                    let unit = self.unit.device.uuid();
                    self.target.announce(unit, Sense::LOG_PARAMETERS_CHANGED, Some(&*self.nexus));
                }
                Reply { wanted_bytes: request.parameter_bytes.into(), ..Reply::good() }
            }
            Err(sense) => Reply::check(sense),
        }
    }

    /// Counts the command with its unit. `latency` is the time from its arrival to `reply`.
    pub fn count(&self, reply: &Reply, latency: Duration) {
        self.count_in_log(reply, latency);
        let Some(instruments) = self.unit.device.instruments() else { return };
        // What counts as a read, a write or an unmap of the volume; commands about the unit do not count.
        let operation = match (Kind::of(&self.command), self.command) {
            (Some(Kind::Reads), _) => Operation::Read,
            (Some(Kind::Writes), _) => Operation::Write,
            (_, Command::Unmap { .. }) => Operation::Unmap,
            _ => return,
        };
        match reply.status {
            Status::Good => instruments.answered(operation, self.moved_bytes(reply), latency),
            _ => instruments.failed(operation, latency),
        }
    }

    /// The bytes of the volume that the command read or wrote.
    fn moved_bytes(&self, reply: &Reply) -> u64 {
        match self.command {
            Command::Read(_) => reply.data.iter().map(|slice| slice.len() as u64).sum(),
            // Half of what is sent is only compared.
            Command::CompareAndWrite(_) => self.transfer().out_bytes / 2,
            Command::WriteSame { extent, .. } | Command::Verify(extent, _) => {
                u64::from(extent.blocks) * u64::from(self.unit.device.block_bytes())
            }
            Command::Unmap { .. } => 0,
            _ => self.transfer().out_bytes,
        }
    }

    fn count_in_log(&self, reply: &Reply, latency: Duration) {
        let counters = &self.unit.state.counters;
        let kind = Kind::of(&self.command);
        let block_bytes = u64::from(self.unit.device.block_bytes());
        let time = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        match kind {
            Some(Kind::Reads) => {
                counters.add(LogCounter::ReadCommands, 1);
                counters.add(LogCounter::ReadTime, time);
            }
            Some(Kind::Writes) => {
                counters.add(LogCounter::WriteCommands, 1);
                counters.add(LogCounter::WriteTime, time);
            }
            _ => {}
        }
        if let Some(sense) = reply.sense {
            self.count_error(kind, sense);
            return;
        }
        if reply.status != Status::Good {
            return;
        }
        let bytes = self.moved_bytes(reply);
        match kind {
            Some(Kind::Reads) => {
                counters.add(LogCounter::ReadBytes, bytes);
                counters.add(LogCounter::SentBlocks, bytes / block_bytes);
            }
            Some(Kind::Writes) => {
                counters.add(LogCounter::WrittenBytes, bytes);
                counters.add(LogCounter::ReceivedBlocks, self.transfer().out_bytes / block_bytes);
            }
            Some(Kind::Verifies) => counters.add(LogCounter::VerifiedBytes, bytes),
            None => {}
        }
    }

    /// Counts what a command failed with, if that is an error of the unit, and not of the host.
    fn count_error(&self, kind: Option<Kind>, sense: Sense) {
        let is_medium = Sense { information: None, ..sense } == Sense::UNRECOVERED_READ_ERROR;
        let is_sanitizing = Sense { progress: None, ..sense } == Sense::SANITIZE_IN_PROGRESS;
        let counter = match (sense.key, kind) {
            (_, Some(Kind::Writes)) if is_medium => LogCounter::WriteErrors,
            (_, Some(Kind::Verifies)) if is_medium => LogCounter::VerifyErrors,
            (_, _) if is_medium => LogCounter::ReadErrors,
            (SenseKey::HardwareError | SenseKey::AbortedCommand, _) => LogCounter::NonMediumErrors,
            (SenseKey::NotReady, _) if !is_sanitizing => LogCounter::NonMediumErrors,
            _ => return,
        };
        self.unit.state.counters.add(counter, 1);
    }
}
