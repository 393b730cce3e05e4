//! A SCSI command on its way: gathering its data, running, answering.
//!
//! Invariants: data arrives in order, so a task's next byte is always at offset `received`; nothing is ever
//! asked for twice (`received <= asked <= wanted`); a command given to the device is never cancelled.

use crate::{
    order::Attribute,
    pdu::{DataOut, FINAL, NO_TAG},
};
use quoin_scsi::{Reply, Sense};
use quoin_target::{Admission, Request};
use quoin_volume::BlockDevice;
use quoin_world::{Buf, OneShot, OneShotSender, Slice};
use std::{collections::VecDeque, rc::Rc};
use tokio::time::Instant;

/// Everything the initiator said of a command except its CDB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) itt: u32,
    pub(crate) lun: [u8; 8],
    /// Expected Data Transfer Length, towards the initiator.
    pub(crate) in_bytes: u32,
    /// Expected Data Transfer Length, from the initiator.
    pub(crate) out_bytes: u32,
    pub(crate) immediate: bool,
    pub(crate) attribute: Attribute,
    /// Counts up with the commands of the session.
    pub(crate) number: u64,
    /// When it came: one moment for all that came with one read of the socket.
    pub(crate) received: Instant,
}

impl Head {
    pub(crate) fn expected_bytes(&self) -> u32 {
        self.in_bytes.max(self.out_bytes)
    }
}

pub(crate) struct Task<D> {
    pub(crate) head: Head,
    /// Bytes it may hold in memory, charged to the session while it does.
    pub(crate) cost_bytes: u64,
    pub(crate) stage: Stage<D>,
    /// Not empty when the task was aborted: it is not answered, and those who wait for its end hold the other
    /// sides of these.
    pub(crate) aborted: Vec<Rc<OneShotSender<()>>>,
}

pub(crate) enum Stage<D> {
    /// Data is on its way, or the session is short of memory for it.
    Gathering(Gathering<D>),
    /// All is there, but older tasks go first.
    Dormant(Work<D>),
    Running,
}

pub(crate) struct Gathering<D> {
    then: Then<D>,
    wanted: u32,
    received: u32,
    asked: u32,
    /// How much may still come unasked; 0 once the final bit was seen.
    unsolicited: u32,
    /// Data by parts: what came unasked, then one for each R2T.
    parts: Vec<Buf>,
    /// Bytes of the last part that are filled.
    filled: usize,
    bursts: VecDeque<Burst>,
    data_sn: u32,
    r2t_sn: u32,
}

/// What happens when the data is there.
enum Then<D> {
    Run(Request<D>),
    /// Already decided; data that comes unasked is thrown away first.
    Answer(Reply),
}

struct Burst {
    ttt: u32,
    end: u32,
    buf: Option<Buf>,
}

/// An R2T to send.
pub(crate) struct Ask {
    pub(crate) ttt: u32,
    pub(crate) r2t_sn: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// A task's way out of gathering.
pub(crate) enum Ready<D> {
    Run(Work<D>),
    Answer(Reply),
}

/// Something to be awaited.
pub(crate) enum Work<D> {
    Command {
        itt: u32,
        request: Request<D>,
        data: Vec<Slice>,
        in_bytes: u32,
        received: Instant,
    },
    /// Answer a task management request once everything it aborted has ended.
    Abort {
        itt: u32,
        ended: Vec<OneShot<()>>,
        close: bool,
    },
}

/// What came of [`Work`].
pub(crate) enum Finished {
    Command { itt: u32, reply: Reply },
    Abort { itt: u32, close: bool },
}

pub(crate) async fn perform<D: BlockDevice>(work: Work<D>) -> Finished {
    match work {
        Work::Command { itt, request, data, in_bytes, received } => {
            let reply = request.run(data, in_bytes.into()).await;
            request.count(&reply, received.elapsed());
            Finished::Command { itt, reply }
        }
        Work::Abort { itt, ended, close } => {
            for end in ended {
                end.await;
            }
            Finished::Abort { itt, close }
        }
    }
}

impl<D: BlockDevice> Gathering<D> {
    /// `unsolicited` is how much may follow the command unasked, immediate data included.
    pub(crate) fn new(admission: Admission<D>, head: &Head, immediate: &[u8], unsolicited: u32) -> Self {
        let (then, wanted) = match admission {
            Admission::Done(reply) => (Then::Answer(reply), 0),
            Admission::Run(request)
                if request.transfer().is_exact
                    && request.transfer().out_bytes != u64::from(head.out_bytes) =>
            {
                (Then::Answer(Reply::check(Sense::INVALID_FIELD_IN_CDB)), 0)
            }
            Admission::Run(request) => {
                let wanted = request.transfer().out_bytes.min(head.out_bytes.into()) as u32;
                (Then::Run(request), wanted)
            }
        };
        let received = immediate.len() as u32;
        let (mut parts, mut filled) = (Vec::new(), 0);
        let early = wanted.min(unsolicited.max(received)) as usize;
        if early > 0 {
            let mut buf = Buf::zeroed(early);
            filled = early.min(immediate.len());
            buf.as_mut_slice()[..filled].copy_from_slice(&immediate[..filled]);
            parts.push(buf);
        }
        let unsolicited = unsolicited.saturating_sub(received);
        let bursts = VecDeque::new();
        Self { then, wanted, received, asked: 0, unsolicited, parts, filled, bursts, data_sn: 0, r2t_sn: 0 }
    }

    /// What it will hold in memory.
    pub(crate) fn cost_bytes(&self, head: &Head) -> u64 {
        match &self.then {
            Then::Run(request) => {
                u64::from(self.wanted) + request.transfer().in_bytes.min(head.in_bytes.into())
            }
            Then::Answer(_) => 0,
        }
    }

    /// What it holds in memory already, unasked.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// True while data was asked for and has not come.
    pub(crate) fn awaits_data(&self) -> bool {
        self.unsolicited > 0 || !self.bursts.is_empty()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.unsolicited == 0 && self.bursts.is_empty() && self.received >= self.wanted
    }

    /// The next part to ask for, of at most `max_burst_bytes`; none while data may still come unasked, or
    /// when `max_outstanding` are asked for already.
    pub(crate) fn ask(&mut self, ttt: u32, max_burst_bytes: u32, max_outstanding: u32) -> Option<Ask> {
        let offset = self.asked.max(self.received);
        let bytes = self.wanted.saturating_sub(offset).min(max_burst_bytes);
        if self.unsolicited > 0 || bytes == 0 || self.bursts.len() >= max_outstanding as usize {
            return None;
        }
        if self.asked == 0 {
            self.trim();
        }
        self.asked = offset + bytes;
        self.bursts.push_back(Burst { ttt, end: self.asked, buf: Some(Buf::zeroed(bytes as usize)) });
        let r2t_sn = self.r2t_sn;
        self.r2t_sn += 1;
        Some(Ask { ttt, r2t_sn, offset, bytes })
    }

    /// Cuts the last part to what is in it.
    fn trim(&mut self) {
        if let Some(last) = self.parts.last_mut() {
            last.truncate(self.filled);
        }
    }

    /// Takes a Data-Out.
    ///
    /// # Errors
    /// It is not the one that must come next.
    pub(crate) fn take(&mut self, pdu: &DataOut, data: &[u8]) -> Result<(), &'static str> {
        let len = data.len() as u32;
        let is_final = pdu.flags & FINAL != 0;
        if pdu.offset.get() != self.received {
            return Err("its data is not at the next offset");
        }
        if pdu.data_sn.get() != self.data_sn {
            return Err("its DataSN is not the next one");
        }
        self.data_sn += 1;
        if pdu.ttt.get() == NO_TAG {
            self.unsolicited =
                self.unsolicited.checked_sub(len).ok_or("it brings more than may come unasked")?;
            self.fill(data);
            if is_final {
                (self.unsolicited, self.data_sn) = (0, 0);
            } else if self.unsolicited == 0 {
                return Err("its final bit is missing");
            }
            return Ok(());
        }
        let received = self.received;
        let burst = self.bursts.front_mut().filter(|burst| burst.ttt == pdu.ttt.get());
        let burst = burst.ok_or("its transfer tag is not the one to be served next")?;
        let left = burst.end - received;
        if len > left || (len == left) != is_final {
            return Err("it does not end where what was asked for ends");
        }
        if let Some(buf) = burst.buf.take() {
            self.parts.push(buf);
            self.filled = 0;
        }
        self.fill(data);
        if is_final {
            self.bursts.pop_front();
            self.data_sn = 0;
        }
        Ok(())
    }

    /// Puts data in the last part; what the command does not want is dropped.
    fn fill(&mut self, data: &[u8]) {
        self.received += data.len() as u32;
        if let Some(last) = self.parts.last_mut() {
            let room = &mut last.as_mut_slice()[self.filled..];
            let len = room.len().min(data.len());
            room[..len].copy_from_slice(&data[..len]);
            self.filled += len;
        }
    }

    /// What follows now that it is complete.
    pub(crate) fn finish(mut self, head: &Head) -> Ready<D> {
        self.trim();
        match self.then {
            Then::Answer(reply) => Ready::Answer(reply),
            Then::Run(request) => {
                let Head { itt, in_bytes, received, .. } = *head;
                Ready::Run(Work::Command { itt, request, data: join(self.parts), in_bytes, received })
            }
        }
    }
}

/// The parts as slices, all but the last a multiple of a sector long: copied together if they are not.
fn join(parts: Vec<Buf>) -> Vec<Slice> {
    let sector = quoin_base::SECTOR_BYTES as usize;
    let before_last = parts.len().saturating_sub(1);
    if parts[..before_last].iter().all(|part| part.len().is_multiple_of(sector)) {
        return parts.into_iter().map(Buf::into_slice).collect();
    }
    let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    vec![Slice::copy_of(&whole)]
}
