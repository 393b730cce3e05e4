//! Keeps a number of transfers in flight on one session until their source runs dry.
//!
//! Closed loop: one wake-up reads what has come, completes it, starts as many new commands, sends them together. A source
//! may also say when transfers are due; their time counts from then.

use std::{collections::VecDeque, time::Instant};

use anyhow::{Result, anyhow, bail, ensure};

use crate::connection::{Connection, Sense};
use crate::pdu::{Event, Header, opcode, transfer_cdb};
use crate::sender::Sender;

/// One transfer, in bytes of the logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Whether it is a write.
    pub write: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// What a source wants to happen next.
pub enum Next {
    /// This transfer.
    Start(Io),
    /// This transfer, which was due at that time already.
    Overdue(Io, Instant),
    /// Nothing before that time.
    NotBefore(Instant),
    /// Nothing until one in flight has completed.
    Wait,
    /// Nothing any more.
    Done,
}

/// Where transfers come from and go to.
pub trait Source {
    /// Whether the engine must keep what reads return.
    fn wants_data(&self) -> bool;
    /// What to do now.
    fn next(&mut self, now: Instant) -> Next;
    /// Fills in what a write is to carry.
    fn fill(&mut self, io: Io, data: &mut [u8]);
    /// Takes a completed transfer; `data` is what a read returned, if wanted.
    fn completed(&mut self, io: Io, data: &[u8], started: Instant, now: Instant) -> Result<()>;
}

struct Slot {
    io: Option<Io>,
    data: Vec<u8>,
    started: Instant,
    received: u32,
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// How transfers are put on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Transfers in flight.
    pub depth: usize,
    /// The longest of them.
    pub largest_bytes: usize,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Set FUA in writes.
    pub fua: bool,
}

struct Engine<'a> {
    shape: Shape,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Sent again when others have completed: the target had no room for them.
    turned_away: VecDeque<usize>,
    sense: Vec<u8>,
    source: &'a mut dyn Source,
    /// When the next transfer is due, if the source told.
    next_due: Option<Instant>,
}

/// Runs `source` dry.
pub fn run(connection: &mut Connection, source: &mut dyn Source, shape: Shape) -> Result<()> {
    let mut noise = crate::Rng::new(shape.depth as u64);
    let slots = (0..shape.depth)
        .map(|_| {
            let mut data = vec![0; shape.largest_bytes];
            noise.fill(&mut data);
            Slot { io: None, data, started: Instant::now(), received: 0 }
        })
        .collect();
    let free = (0..shape.depth).rev().collect();
    let mut engine = Engine {
        shape,
        slots,
        free,
        turned_away: VecDeque::new(),
        sense: Vec::new(),
        source,
        next_due: None,
    };
    let mut now = Instant::now();
    loop {
        let done = engine.start(&mut connection.sender, now)?;
        if done && engine.free.len() == shape.depth {
            return Ok(());
        }
        connection.flush(&engine.slots)?;
        if connection.wait_for_input(engine.next_due)? {
            let mut arrived = None;
            connection.receive(|sender, header, event| {
                let now = *arrived.get_or_insert_with(Instant::now);
                engine.take(sender, header, event, now)
            })?;
            now = arrived.unwrap_or_else(Instant::now);
        } else if engine.next_due.is_some() {
            now = Instant::now();
        }
    }
}

impl Engine<'_> {
    /// Starts all that may start; true when the source is dry.
    fn start(&mut self, sender: &mut Sender, now: Instant) -> Result<bool> {
        self.next_due = None;
        while let Some(&slot) = self.free.last()
            && sender.window_is_open()
        {
            let (io, started) = match self.source.next(now) {
                Next::Start(io) => (io, now),
                Next::Overdue(io, due) => (io, due),
                Next::NotBefore(due) => {
                    self.next_due = Some(due);
                    return Ok(false);
                }
                Next::Wait => {
                    ensure!(
                        self.free.len() < self.shape.depth,
                        "the source waits though nothing is in flight"
                    );
                    return Ok(false);
                }
                Next::Done => return Ok(true),
            };
            self.free.pop();
            let entry = &mut self.slots[slot];
            if io.write {
                self.source.fill(io, &mut entry.data[..io.len as usize]);
            }
            (entry.io, entry.started) = (Some(io), started);
            self.send(sender, slot, io);
        }
        Ok(false)
    }

    fn send(&mut self, sender: &mut Sender, slot: usize, io: Io) {
        self.slots[slot].received = 0;
        let block = u64::from(self.shape.block_bytes);
        let blocks = io.len / self.shape.block_bytes;
        let cdb = transfer_cdb(io.write, io.write && self.shape.fua, io.offset / block, blocks);
        sender.push_command(slot, cdb, io.len, io.write.then_some(slot));
    }

    fn take(&mut self, sender: &mut Sender, header: &Header, event: Event<'_>, now: Instant) -> Result<()> {
        let index = header.itt() as usize;
        let Some((slot, io)) = self.slots.get_mut(index).and_then(|slot| slot.io.map(|io| (slot, io))) else {
            bail!("the target sent {header:?} for a command that is not in flight");
        };
        match (header.opcode(), event) {
            (opcode::DATA_IN, Event::Data { offset, bytes }) if !io.write => {
                let at = header.u32_at(40) as usize + offset as usize;
                ensure!(
                    at + bytes.len() <= io.len as usize,
                    "the target sent data beyond what {io:?} asked for"
                );
                if self.source.wants_data() {
                    slot.data[at..at + bytes.len()].copy_from_slice(bytes);
                }
                slot.received += bytes.len() as u32;
                Ok(())
            }
            (opcode::DATA_IN, Event::End) if header.flags() & 1 == 0 => Ok(()),
            (opcode::DATA_IN, Event::End) => self.complete(sender, index, io, header, now),
            (opcode::R2T, Event::End) if io.write => {
                let end = u64::from(header.u32_at(40)) + u64::from(header.u32_at(44));
                ensure!(end <= u64::from(io.len), "the target asked for data beyond what {io:?} has");
                sender.push_data_out(header);
                Ok(())
            }
            (opcode::RESPONSE, Event::Data { bytes, .. }) => {
                self.sense.extend_from_slice(bytes);
                Ok(())
            }
            (opcode::RESPONSE, Event::End) => self.complete(sender, index, io, header, now),
            _ => Err(anyhow!("the target sent {header:?} in answer to {io:?}")),
        }
    }

    fn complete(
        &mut self,
        sender: &mut Sender,
        index: usize,
        io: Io,
        header: &Header,
        now: Instant,
    ) -> Result<()> {
        let segment = std::mem::take(&mut self.sense);
        if header.0[3] != 0 || header.opcode() == opcode::RESPONSE && header.0[2] != 0 {
            let sense = Sense::of(header, &segment);
            if sense.is_unit_attention() {
                self.send(sender, index, io); // a notice, not a refusal: the same command again
                return Ok(());
            }
            if sense.is_task_set_full() {
                // Something that completes makes room. If nothing is in flight any more there is room by now.
                self.turned_away.push_back(index);
                if self.free.len() + self.turned_away.len() == self.shape.depth {
                    self.send_again(sender);
                }
                return Ok(());
            }
            bail!("the target failed {io:?}: {sense}, iSCSI response {:#04x}", header.0[2]);
        }
        let slot = &mut self.slots[index];
        ensure!(io.write || slot.received == io.len, "{io:?} returned {} bytes and said GOOD", slot.received);
        slot.io = None;
        self.free.push(index);
        self.source.completed(io, &slot.data[..io.len as usize], slot.started, now)?;
        self.send_again(sender);
        Ok(())
    }

    /// Sends the first again of those that the target had no room for.
    fn send_again(&mut self, sender: &mut Sender) {
        let Some(index) = self.turned_away.pop_front() else { return };
        if let Some(io) = self.slots[index].io {
            self.send(sender, index, io);
        }
    }
}
