//! A client over NBD: requests in any order, and what it must not be told.
//!
//! Nothing fences a connection that was lost: what it was not answered may take effect until the array has stopped.

use super::{
    shared::{Array, Front, Trouble, What},
    stream::exchange,
};
use crate::{scenario::log_uniform, stamp};
use quoin_base::SECTOR_BYTES;
use quoin_nbd::wire::{
    Chunk, Errno, OPTION_MAGIC, OptionHeader, OptionReply, REPLY_FLAG_DONE, REQUEST_MAGIC, Request,
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, SimpleReply, chunk, command, command_flag, option, reply,
};
use quoin_world_sim::SimStream;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{collections::BTreeMap, sync::Arc};
use zerocopy::{FromBytes, IntoBytes};

/// Times in a row that nothing came before a client gives a connection up.
const PATIENCE: u32 = 8;
const GREETING_BYTES: usize = 18;
/// Fixed newstyle, and no zeroes behind the export.
const CLIENT_FLAGS: u32 = 3;

/// A client, over all its connections.
pub(super) struct NbdClient {
    pub(super) array: Arc<Array>,
    pub(super) rng: ChaCha8Rng,
    pub(super) number: u64,
    pub(super) operations: u32,
    /// Connections it has forgotten without a word to the array.
    pub(super) forgotten: Vec<SimStream>,
}

struct Connection<'a> {
    client: &'a mut NbdClient,
    stream: SimStream,
    input: Vec<u8>,
    output: Vec<u8>,
    unit: usize,
    structured: bool,
    next_cookie: u64,
    requests: BTreeMap<u64, What>,
}

impl NbdClient {
    pub(super) async fn run(mut self) {
        let shared = self.array.shared.clone();
        while self.operations > 0 && !shared.is_over() {
            let outcome = self.connection().await;
            shared.pause_after(outcome, &mut self.rng, &format!("client {}", self.number)).await;
        }
    }

    async fn connection(&mut self) -> Result<(), Trouble> {
        let array = self.array.clone();
        let stream = array.connect(&mut self.rng, Front::Nbd, self.number);
        let mut connection = Connection {
            unit: self.rng.random_range(0..array.units.len()),
            structured: self.rng.random(),
            client: self,
            stream,
            input: Vec::new(),
            output: Vec::new(),
            next_cookie: 0,
            requests: BTreeMap::new(),
        };
        let mut outcome = connection.negotiate().await;
        if outcome.is_ok() {
            outcome = connection.transmission().await;
        }
        let Connection { requests, stream, .. } = connection;
        for what in requests.into_values() {
            // A write stays under way, as far as anybody can tell.
            what.unanswered(&array.shared);
        }
        if outcome.is_err() && self.rng.random_bool(0.3) {
            self.forgotten.push(stream);
        }
        outcome
    }
}

impl Connection<'_> {
    /// Waits until so many bytes have come.
    async fn need(&mut self, bytes: usize) -> Result<(), Trouble> {
        let mut quiet = 0;
        while self.input.len() < bytes {
            quiet = if self.exchange().await? { 0 } else { quiet + 1 };
            if quiet >= PATIENCE || self.client.array.shared.is_over() {
                return Err(Trouble::Lost);
            }
        }
        Ok(())
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        let header = OptionHeader {
            magic: OPTION_MAGIC.into(),
            option: option.into(),
            data_bytes: (data.len() as u32).into(),
        };
        self.output.extend_from_slice(header.as_bytes());
        self.output.extend_from_slice(data);
    }

    async fn negotiate(&mut self) -> Result<(), Trouble> {
        self.need(GREETING_BYTES).await?;
        self.input.drain(..GREETING_BYTES);
        self.output.extend_from_slice(&CLIENT_FLAGS.to_be_bytes());
        if self.structured {
            self.option(option::STRUCTURED_REPLY, &[]);
        }
        let name = super::export_name(self.unit);
        let mut go = (name.len() as u32).to_be_bytes().to_vec();
        go.extend_from_slice(name.as_bytes());
        go.extend_from_slice(&[0, 0]);
        self.option(option::GO, &go);
        loop {
            self.need(OptionReply::BYTES).await?;
            let parsed = OptionReply::read_from_prefix(&self.input).ok().map(|(reply, _)| reply);
            let Some(header) = parsed else { return Err(Trouble::Lost) };
            let len = OptionReply::BYTES + header.data_bytes.get() as usize;
            self.need(len).await?;
            self.input.drain(..len);
            match (header.option.get(), header.kind.get()) {
                (option::GO, reply::ACK) => break,
                (option::GO, reply::INFO) | (option::STRUCTURED_REPLY, reply::ACK) => {}
                _ => return Err(Trouble::Violation(format!("negotiation failed: {header:?}"))),
            }
        }
        self.client.array.shared.totals.lock().negotiations += 1;
        Ok(())
    }

    async fn transmission(&mut self) -> Result<(), Trouble> {
        let mut budget = (log_uniform(&mut self.client.rng, 1, 120) as u32).min(self.client.operations);
        self.client.operations -= budget;
        let depth = log_uniform(&mut self.client.rng, 1, 32) as usize;
        let drops_at = self.client.rng.random_bool(0.3).then(|| self.client.rng.random_range(0..=budget));
        let mut quiet = 0;
        loop {
            if self.client.array.shared.is_over() || drops_at == Some(budget) {
                return Err(Trouble::Lost);
            }
            while budget > 0 && self.requests.len() < depth {
                budget -= 1;
                self.request();
                if self.client.rng.random_bool(0.2) {
                    break;
                }
            }
            if budget == 0 && self.requests.is_empty() {
                self.send(command::DISC, 0, 0, 0);
                self.exchange().await?;
                self.client.array.shared.totals.lock().disconnects += 1;
                return Ok(());
            }
            quiet = if self.exchange().await? { 0 } else { quiet + 1 };
            while self.reply()? {}
            if quiet >= PATIENCE {
                return Err(Trouble::Lost);
            }
        }
    }

    fn send(&mut self, kind: u16, flags: u16, offset: u64, len: u32) -> u64 {
        self.next_cookie += 1;
        let request = Request {
            magic: REQUEST_MAGIC.into(),
            flags: flags.into(),
            kind: kind.into(),
            cookie: self.next_cookie.into(),
            offset: offset.into(),
            len_bytes: len.into(),
        };
        self.output.extend_from_slice(request.as_bytes());
        self.next_cookie
    }

    fn request(&mut self) {
        let array = self.client.array.clone();
        let rng = &mut self.client.rng;
        let (first, sectors) = loop {
            let (unit, first, sectors) = array.range(rng);
            if unit == self.unit {
                break (first, sectors);
            }
        };
        let volume = array.units[self.unit].volume;
        let (offset, len) = (u64::from(first) * SECTOR_BYTES, sectors * SECTOR_BYTES as u32);
        let choice = rng.random_range(0..100);
        let fua = if rng.random() { command_flag::FUA } else { 0 };
        let begin = |zero| array.shared.history.lock().begin(volume, 0, first, sectors, zero);
        let (cookie, what) = match choice {
            0..=54 => {
                let op = begin(false);
                let value = array.shared.history.lock().value(op);
                let cookie = self.send(command::WRITE, fua, offset, len);
                self.output.extend_from_slice(&stamp::content(value, volume, u64::from(first), sectors));
                (cookie, What::Write(op))
            }
            55..=60 => (self.send(command::TRIM, fua, offset, len), What::Write(begin(true))),
            61..=66 => (self.send(command::WRITE_ZEROES, fua, offset, len), What::Write(begin(true))),
            67..=96 => {
                let begun = array.shared.history.lock().begin_read();
                let data = vec![0; len as usize];
                (self.send(command::READ, 0, offset, len), What::Read { begun, first, data, received: 0 })
            }
            _ => (self.send(command::FLUSH, 0, 0, 0), What::Other),
        };
        self.requests.insert(cookie, what);
    }

    async fn exchange(&mut self) -> Result<bool, Trouble> {
        let NbdClient { array, rng, .. } = &mut *self.client;
        exchange(&array.shared, rng, &self.stream, &mut self.input, &mut self.output).await
    }

    /// Takes one whole reply, or a chunk of one. False if there is none.
    fn reply(&mut self) -> Result<bool, Trouble> {
        let Some(magic) = self.input.first_chunk::<4>() else { return Ok(false) };
        match u32::from_be_bytes(*magic) {
            SIMPLE_REPLY_MAGIC => self.simple_reply(),
            STRUCTURED_REPLY_MAGIC => self.chunk(),
            magic => Err(Trouble::Violation(format!("a reply begins with {magic:#x}"))),
        }
    }

    fn simple_reply(&mut self) -> Result<bool, Trouble> {
        let Ok((header, rest)) = SimpleReply::read_from_prefix(&self.input) else { return Ok(false) };
        let (cookie, error) = (header.cookie.get(), header.error.get());
        let mut len = 0;
        if let Some(What::Read { data, received, .. }) = self.requests.get_mut(&cookie)
            && error == 0
        {
            len = data.len();
            let Some(bytes) = rest.get(..len) else { return Ok(false) };
            data.copy_from_slice(bytes);
            *received = len;
        }
        self.input.drain(..SimpleReply::BYTES + len);
        self.end(cookie, error)?;
        Ok(true)
    }

    fn chunk(&mut self) -> Result<bool, Trouble> {
        let Ok((header, rest)) = Chunk::read_from_prefix(&self.input) else { return Ok(false) };
        let len = header.payload_bytes.get() as usize;
        let Some(payload) = rest.get(..len).map(<[u8]>::to_vec) else { return Ok(false) };
        self.input.drain(..Chunk::BYTES + len);
        let cookie = header.cookie.get();
        let odd = || Trouble::Violation(format!("a chunk that makes no sense: {header:?}"));
        let offset = || payload.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes));
        let mut error = 0;
        match header.kind.get() {
            chunk::NONE => {}
            chunk::OFFSET_DATA => {
                let bytes = payload.get(8..).ok_or_else(odd)?;
                self.fill(cookie, offset().ok_or_else(odd)?, bytes).ok_or_else(odd)?;
            }
            chunk::OFFSET_HOLE => {
                let zeroes = payload.get(8..12).and_then(|bytes| bytes.first_chunk::<4>()).ok_or_else(odd)?;
                let zeroes = vec![0; u32::from_be_bytes(*zeroes) as usize];
                self.fill(cookie, offset().ok_or_else(odd)?, &zeroes).ok_or_else(odd)?;
            }
            chunk::ERROR | chunk::ERROR_OFFSET => {
                error = u32::from_be_bytes(*payload.first_chunk::<4>().ok_or_else(odd)?);
            }
            _ => return Err(odd()),
        }
        if error != 0 || header.flags.get() & REPLY_FLAG_DONE != 0 {
            self.end(cookie, error)?;
        }
        Ok(true)
    }

    /// Notes what was read; `None` if it was not asked for.
    fn fill(&mut self, cookie: u64, offset: u64, bytes: &[u8]) -> Option<()> {
        let Some(What::Read { first, data, received, .. }) = self.requests.get_mut(&cookie) else {
            return None;
        };
        let at = offset.checked_sub(u64::from(*first) * SECTOR_BYTES)? as usize;
        data.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        *received += bytes.len();
        Some(())
    }

    fn end(&mut self, cookie: u64, error: u32) -> Result<(), Trouble> {
        let array = self.client.array.clone();
        let Some(what) = self.requests.remove(&cookie) else {
            return Err(Trouble::Violation(format!("request {cookie} is answered, and was before")));
        };
        if error != 0 {
            what.give_up(&array.shared);
            if error == Errno::NoSpc as u32 {
                array.shared.totals.lock().refused_full += 1;
                return Ok(());
            }
            return if array.shared.is_over() {
                Ok(())
            } else {
                Err(Trouble::Violation(format!("request {cookie} failed with error {error}")))
            };
        }
        what.succeeded(&array, self.unit)
    }
}
