//! A host that speaks iSCSI: sessions, their commands, and what it must not be told.
//!
//! 1. Of a write answered GOOD every later read tells, until it is overwritten.
//! 2. A write that the host was told is ended (ABORT TASK, a reset, a login that replaced its session) is there from
//!    then on or never, by blocks of the pool.
//! 3. Nothing is answered twice, nor after it was ended; status numbers have no gap.

use super::{
    command::{Function, Task},
    login::Agreed,
    shared::{Array, Front, Trouble},
    stream::exchange,
};
use crate::{model::OpId, scenario::log_uniform};
use quoin_base::crc32c;
use quoin_iscsi::pdu::{
    BHS_BYTES, Bhs, FINAL, Frame, Framing, IMMEDIATE, LogoutRequest, NO_TAG, NopOut, Parsed, U24, opcode,
    padding,
};
use quoin_world_sim::SimStream;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{collections::BTreeMap, sync::Arc};
use zerocopy::IntoBytes;

/// Times in a row that nothing came before a host gives a connection up.
const PATIENCE: u32 = 6;
/// What is queued to be sent at most, before more is made.
const QUEUED_BYTES: usize = 128 << 10;

/// A host's session, over all its connections.
pub(super) struct Initiator {
    pub(super) array: Arc<Array>,
    pub(super) rng: ChaCha8Rng,
    /// Tells hosts apart, and sessions of a host.
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) isid: [u8; 6],
    /// What it is to do yet.
    pub(super) operations: u32,
    pub(super) tsih: u16,
    /// Writes of connections that were lost: in doubt until a login has replaced the session.
    pub(super) orphans: Vec<OpId>,
    /// Connections it has forgotten without a word to the array.
    pub(super) forgotten: Vec<SimStream>,
}

/// One connection.
pub(super) struct Connection<'a> {
    pub(super) host: &'a mut Initiator,
    pub(super) stream: SimStream,
    input: Vec<u8>,
    output: Vec<u8>,
    pub(super) agreed: Agreed,
    /// The most data of a PDU that it said it takes.
    pub(super) takes_bytes: usize,
    framing: Framing,
    pub(super) cmd_sn: u32,
    max_cmd_sn: u32,
    pub(super) stat_sn: u32,
    pub(super) next_itt: u32,
    pub(super) depth: usize,
    pub(super) tasks: BTreeMap<u32, Task>,
    pub(super) functions: BTreeMap<u32, Function>,
    /// Answers to R2Ts, in the order of each task.
    pub(super) solicited: Vec<Solicited>,
    leaving: Leaving,
}

/// Data that the array asked for.
pub(super) struct Solicited {
    pub(super) itt: u32,
    pub(super) ttt: u32,
    pub(super) offset: usize,
    pub(super) end: usize,
    pub(super) data_sn: u32,
}

/// How far it is with logging out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// When all is answered.
    Soon,
    Asked,
    Done,
}

impl Initiator {
    pub(super) async fn run(mut self) {
        let shared = self.array.shared.clone();
        while self.operations > 0 && !shared.is_over() {
            let outcome = self.connection().await;
            shared.pause_after(outcome, &mut self.rng, &format!("host {}", self.number)).await;
        }
    }

    /// One connection, from login to its end.
    async fn connection(&mut self) -> Result<(), Trouble> {
        let array = self.array.clone();
        let stream = array.connect(&mut self.rng, Front::Iscsi, self.number);
        let framing = Framing { header_digest: false, data_digest: false, max_data_bytes: 1 << 24 };
        let mut connection = Connection {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            agreed: Agreed::default(),
            takes_bytes: 0,
            framing,
            cmd_sn: self.rng.random(),
            max_cmd_sn: 0,
            stat_sn: 0,
            next_itt: 1,
            depth: log_uniform(&mut self.rng, 1, 40) as usize,
            tasks: BTreeMap::new(),
            functions: BTreeMap::new(),
            solicited: Vec::new(),
            leaving: Leaving::No,
            host: self,
        };
        let mut outcome = connection.login().await;
        if outcome.is_ok() {
            outcome = connection.full_feature().await;
        }
        let Connection { tasks, stream, .. } = connection;
        for task in tasks.into_values() {
            self.orphans.extend(task.what.unanswered(&array.shared));
        }
        if outcome.is_err() && self.rng.random_bool(0.3) {
            self.forgotten.push(stream);
        }
        outcome
    }
}

impl Connection<'_> {
    pub(super) fn array(&self) -> Arc<Array> {
        self.host.array.clone()
    }

    /// Digests and lengths are as was agreed from now on.
    pub(super) fn established(&mut self, agreed: Agreed) {
        self.framing.header_digest = agreed.header_digest;
        self.framing.data_digest = agreed.data_digest;
        self.agreed = agreed;
    }

    pub(super) fn note_window(&mut self, max_cmd_sn: u32) {
        if max_cmd_sn.wrapping_sub(self.max_cmd_sn) < 1 << 31 {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    pub(super) fn start_window(&mut self, max_cmd_sn: u32) {
        self.max_cmd_sn = max_cmd_sn;
    }

    fn window_is_open(&self) -> bool {
        self.max_cmd_sn.wrapping_sub(self.cmd_sn) < 1 << 31
    }

    pub(super) fn take_itt(&mut self) -> u32 {
        self.next_itt += 1;
        self.next_itt
    }

    async fn full_feature(&mut self) -> Result<(), Trouble> {
        let mut budget = (log_uniform(&mut self.host.rng, 1, 120) as u32).min(self.host.operations);
        self.host.operations -= budget;
        // Some connections end without a farewell, whatever is under way.
        let drops_at = self.host.rng.random_bool(0.3).then(|| self.host.rng.random_range(0..=budget));
        let mut quiet = 0;
        loop {
            if self.array().shared.is_over() || drops_at == Some(budget) {
                return Err(Trouble::Lost);
            }
            while self.output.len() < QUEUED_BYTES && self.produce(&mut budget) {}
            if budget == 0 && self.leaving == Leaving::No {
                self.leaving = Leaving::Soon;
            }
            let is_idle = self.tasks.is_empty() && self.functions.is_empty();
            if self.leaving == Leaving::Soon && is_idle {
                self.log_out();
            }
            let came = self.exchange().await?;
            while let Some((bhs, data)) = self.next_pdu()? {
                self.receive(bhs, &data)?;
            }
            if self.leaving == Leaving::Done {
                return Ok(());
            }
            quiet = if came { 0 } else { quiet + 1 };
            match quiet {
                0 => {}
                PATIENCE.. => return Err(Trouble::Lost),
                _ => self.abort_something(),
            }
        }
    }

    /// Queues one more PDU, if there is anything to say now.
    fn produce(&mut self, budget: &mut u32) -> bool {
        if !self.solicited.is_empty() && self.host.rng.random_bool(0.8) {
            self.send_solicited();
            return true;
        }
        let has_room = self.tasks.len() < self.depth && self.window_is_open();
        if *budget > 0 && has_room && self.leaving == Leaving::No {
            *budget -= 1;
            match self.host.rng.random_range(0..100) {
                0..=5 => self.abort_something(),
                6..=7 => self.manage_unit(),
                _ => self.command(),
            }
            // As a rule several go out together.
            return self.host.rng.random_bool(0.8);
        }
        !self.solicited.is_empty()
    }

    fn log_out(&mut self) {
        self.leaving = Leaving::Asked;
        let itt = self.take_itt();
        let request = LogoutRequest {
            opcode: opcode::LOGOUT_REQUEST | IMMEDIATE,
            flags: FINAL,
            itt: itt.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.stat_sn.into(),
            ..LogoutRequest::default()
        };
        self.push(request, &[]);
    }

    /// Queues a PDU.
    pub(super) fn push(&mut self, header: impl Into<Bhs>, data: &[u8]) {
        let header = Bhs { data_len: U24::new(data.len()), ..header.into() };
        self.output.extend_from_slice(header.as_bytes());
        if self.framing.header_digest {
            self.output.extend_from_slice(&crc32c(header.as_bytes()).0.to_le_bytes());
        }
        let start = self.output.len();
        self.output.extend_from_slice(data);
        self.output.resize(self.output.len() + padding(data.len()), 0);
        if self.framing.data_digest && !data.is_empty() {
            let digest = crc32c(&self.output[start..]).0;
            self.output.extend_from_slice(&digest.to_le_bytes());
        }
    }

    /// Sends and receives until something has come, all is sent, or a while is over; true unless that.
    pub(super) async fn exchange(&mut self) -> Result<bool, Trouble> {
        let Initiator { array, rng, .. } = &mut *self.host;
        exchange(&array.shared, rng, &self.stream, &mut self.input, &mut self.output).await
    }

    pub(super) fn next_pdu(&mut self) -> Result<Option<(Bhs, Vec<u8>)>, Trouble> {
        if self.input.len() < BHS_BYTES {
            return Ok(None);
        }
        match Frame::parse(&self.input, self.framing) {
            Ok(Parsed::Need(_)) => Ok(None),
            Ok(Parsed::Whole(frame)) => {
                let data = frame.data(&self.input).to_vec();
                self.input.drain(..frame.end);
                Ok(Some((frame.bhs, data)))
            }
            Ok(Parsed::BadData(frame)) => {
                Err(Trouble::Violation(format!("the data digest of {:?} is wrong", frame.bhs)))
            }
            Err(error) => Err(Trouble::Violation(format!("its stream cannot be followed: {error}"))),
        }
    }

    fn receive(&mut self, bhs: Bhs, data: &[u8]) -> Result<(), Trouble> {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| bhs.rest[at + i]));
        let operation = bhs.operation();
        let (stat_sn, max_cmd_sn) = (word(4), word(12));
        self.note_window(max_cmd_sn);
        let has_status = match operation {
            opcode::DATA_IN => bhs.flags & 1 != 0,
            opcode::NOP_IN => bhs.itt.get() != NO_TAG,
            opcode::R2T => false,
            _ => true,
        };
        if has_status {
            if stat_sn != self.stat_sn {
                let expected = self.stat_sn;
                return Err(Trouble::Violation(format!("StatSN {stat_sn} instead of {expected}: {bhs:?}")));
            }
            self.stat_sn = stat_sn.wrapping_add(1);
        }
        match operation {
            opcode::R2T => self.asked(bhs.into()),
            opcode::DATA_IN if data.len() > self.takes_bytes => {
                let what = format!("{} bytes in a PDU, and it takes {}", data.len(), self.takes_bytes);
                Err(Trouble::Violation(what))
            }
            opcode::DATA_IN => self.data_in(bhs.into(), data),
            opcode::SCSI_RESPONSE => self.answered(bhs.into(), data),
            opcode::TASK_RESPONSE => self.function_ended(bhs.into()),
            opcode::NOP_IN if word(0) != NO_TAG => {
                self.array().shared.totals.lock().pings += 1;
                let answer = NopOut {
                    opcode: opcode::NOP_OUT | IMMEDIATE,
                    flags: FINAL,
                    lun: bhs.lun,
                    itt: NO_TAG.into(),
                    ttt: word(0).into(),
                    cmd_sn: self.cmd_sn.into(),
                    exp_stat_sn: self.stat_sn.into(),
                    ..NopOut::default()
                };
                self.push(answer, &[]);
                Ok(())
            }
            opcode::NOP_IN => Ok(()),
            opcode::LOGOUT_RESPONSE => {
                self.array().shared.totals.lock().logouts += 1;
                self.leaving = Leaving::Done;
                Ok(())
            }
            opcode::ASYNC_MESSAGE => {
                if self.leaving == Leaving::No {
                    self.leaving = Leaving::Soon;
                }
                Ok(())
            }
            _ => Err(Trouble::Violation(format!("an unexpected PDU: {bhs:?}"))),
        }
    }
}
