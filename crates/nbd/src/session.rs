//! Transmission as a state machine: bytes of requests in, work and replies out.
//!
//! Invariants: a payload is received before anything behind it is looked at; every request but a disconnect gets
//! exactly one reply, when its work has ended; whatever a client can make a session hold is bounded by
//! [`QUEUE_DEPTH`] and [`MEMORY_BYTES`], and by its share of what all may hold, beyond which nothing more is read from
//! it; one request it may always have.

use crate::{
    command::{Finished, Outcome, Unit, Work},
    handshake::{ALLOCATION_CONTEXT_ID, Agreed},
    metrics::MetricsSnapshot,
    operation::{Failure, Operation, Terms},
    receive::{RECEIVE_BYTES, Receive},
    transmit::{Last, Transmit},
    wire::{BadMagic, BlockDescriptor, Errno, ErrorPayload, OffsetHole, Request, chunk, state},
};
use quoin_base::{ByteRange, Extent};
use quoin_qos::Line;
use quoin_target::{Export, SessionShare};
use quoin_volume::BlockDevice;
use quoin_world::{Buf, Nanos, Slice};
use std::{collections::VecDeque, mem, rc::Rc, sync::Arc};
use zerocopy::{IntoBytes, big_endian::U64};

/// Requests a session may have outstanding.
const QUEUE_DEPTH: usize = 256;
/// Bytes of requests' data a session may hold; further requests wait for their turn.
const MEMORY_BYTES: u64 = 64 << 20;
/// The longest message in an error chunk that the protocol allows.
const MAX_MESSAGE_BYTES: usize = 4096;

/// What a session needs before it can go on with what the client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// More bytes.
    Bytes,
    /// That work ends or replies are sent.
    Room,
    /// That the limits of the volume let a request through.
    Turn,
    /// Nothing: the client has disconnected.
    Nothing,
}

/// What is received at the moment.
enum Stage {
    Request,
    /// A request that waits for the limits of the volume.
    Limited(Request, Operation),
    /// A request that waits for room.
    Waiting(Request, Operation),
    /// A write's data; as much as `filled` is there.
    Payload {
        cookie: u64,
        operation: Operation,
        buf: Buf,
        filled: usize,
    },
    /// The data of a write that was refused.
    Skip {
        left: usize,
    },
}

pub(crate) struct Session<D> {
    unit: Rc<Unit<D>>,
    /// What the client may do, which may change while it is connected.
    export: Arc<Export<D>>,
    structured: bool,
    allocation: bool,
    constrained: bool,
    stage: Stage,
    /// Once it was limited.
    line: Option<Rc<Line>>,
    pub(crate) out: Transmit,
    pub(crate) started: Vec<Work<D>>,
    outstanding: usize,
    memory_bytes: u64,
    share: SessionShare,
    disconnected: bool,
    /// New requests are refused: the array shuts down.
    pub(crate) stopping: bool,
    pub(crate) counted: MetricsSnapshot,
    /// When the last bytes arrived.
    pub(crate) received: Nanos,
}

impl<D: BlockDevice> Session<D> {
    pub(crate) fn new<E>(
        unit: Unit<D>,
        export: Arc<Export<D>>,
        agreed: &Agreed<E>,
        share: SessionShare,
        now: Nanos,
    ) -> Self {
        Self {
            unit: Rc::new(unit),
            export,
            structured: agreed.structured,
            allocation: agreed.allocation,
            constrained: agreed.constrained,
            stage: Stage::Request,
            line: None,
            out: Transmit::default(),
            started: Vec::new(),
            outstanding: 0,
            memory_bytes: 0,
            share,
            disconnected: false,
            stopping: false,
            counted: MetricsSnapshot::default(),
            received: now,
        }
    }

    /// Nothing is under way and everything is sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding == 0 && self.out.queued_bytes() == 0
    }

    /// The client has disconnected and everything it asked for is done.
    pub(crate) fn is_over(&self) -> bool {
        self.disconnected && self.is_idle()
    }

    /// The client has begun a request and not sent all of it.
    pub(crate) fn is_amid(&self, receive: &Receive) -> bool {
        match self.stage {
            Stage::Request => !receive.bytes().is_empty(),
            // It is not the client that is waited for.
            Stage::Limited(..) => false,
            Stage::Waiting(..) | Stage::Payload { .. } | Stage::Skip { .. } => true,
        }
    }

    /// The room that the payload under way still has.
    pub(crate) fn payload(&mut self) -> &mut [u8] {
        match &mut self.stage {
            Stage::Payload { buf, filled, .. } => &mut buf.as_mut_slice()[*filled..],
            _ => &mut [],
        }
    }

    /// So much of the payload arrived in [`Session::payload`].
    pub(crate) fn payload_filled(&mut self, len: usize) {
        if let Stage::Payload { filled, buf, .. } = &mut self.stage {
            *filled += len;
            assert!(*filled <= buf.len(), "NBD session: more of a payload arrived than there is room for");
        }
    }

    /// Takes what was received, as far as it goes.
    ///
    /// # Errors
    /// The byte stream cannot be followed.
    pub(crate) fn advance(&mut self, receive: &mut Receive) -> Result<Want, BadMagic> {
        loop {
            if self.disconnected {
                return Ok(Want::Nothing);
            }
            match &mut self.stage {
                Stage::Request => {
                    if !self.has_place() {
                        return Ok(Want::Room);
                    }
                    // NOTE: only with a place for it is a request looked at: then it is begun, or waits here
                    // as the only one.
                    let Some(request) = Request::parse(receive.bytes())? else { return Ok(Want::Bytes) };
                    receive.take(Request::BYTES);
                    self.request(request);
                }
                Stage::Limited(..) => return Ok(Want::Turn),
                Stage::Waiting(request, operation) => {
                    let (request, operation) = (*request, *operation);
                    if !self.has_room(operation) {
                        return Ok(Want::Room);
                    }
                    // NOTE: the stage first: to begin a write sets another one.
                    self.stage = Stage::Request;
                    self.begin(&request, operation);
                }
                Stage::Payload { buf, filled, .. } => {
                    // What was received with the request, as far as it belongs to its payload.
                    let rest = &mut buf.as_mut_slice()[*filled..];
                    let len = rest.len().min(receive.bytes().len());
                    rest[..len].copy_from_slice(&receive.bytes()[..len]);
                    let is_whole = len == rest.len();
                    *filled += len;
                    receive.take(len);
                    if !is_whole {
                        return Ok(Want::Bytes);
                    }
                    if let Stage::Payload { cookie, operation, buf, .. } =
                        mem::replace(&mut self.stage, Stage::Request)
                    {
                        self.start(cookie, operation, buf);
                    }
                }
                Stage::Skip { left } => {
                    let len = receive.bytes().len().min(*left);
                    *left -= len;
                    let is_over = *left == 0;
                    receive.take(len);
                    if !is_over {
                        return Ok(Want::Bytes);
                    }
                    self.stage = Stage::Request;
                }
            }
        }
    }

    fn has_place(&self) -> bool {
        self.outstanding < QUEUE_DEPTH && self.held_bytes() < MEMORY_BYTES
    }

    fn held_bytes(&self) -> u64 {
        self.memory_bytes + self.out.ram_bytes() as u64
    }

    fn has_room(&self, operation: Operation) -> bool {
        let held = self.held_bytes();
        let cost = operation.cost_bytes();
        held == 0 || held + cost <= MEMORY_BYTES && self.share.has_room(cost)
    }

    /// Tells what it holds now to those who share the budget.
    pub(crate) fn note_memory(&mut self) {
        self.share.hold(RECEIVE_BYTES + self.held_bytes());
    }

    fn request(&mut self, request: Request) {
        self.counted.requests += 1;
        let terms = Terms {
            size_bytes: self.unit.device.size_bytes(),
            block_bytes: self.unit.device.block_bytes(),
            read_only: self.export.is_read_only(),
            structured: self.structured,
            allocation: self.allocation,
            constrained: self.constrained,
        };
        // Begun at once, made to wait for memory, or refused.
        let refused = match Operation::of(&request, &terms) {
            Ok(Operation::Disconnect) => return self.disconnected = true,
            Ok(_) if self.stopping => Failure::new(Errno::Shutdown, "the array is shutting down"),
            Ok(operation) if self.must_wait(operation) => {
                return self.stage = Stage::Limited(request, operation);
            }
            Ok(operation) => return self.let_in(request, operation),
            Err(failure) => failure,
        };
        // The data of a refused write comes all the same.
        if request.payload_bytes() > 0 {
            self.stage = Stage::Skip { left: request.payload_bytes() as usize };
        }
        self.fail(request.cookie.get(), &refused);
    }

    /// Whether the limits of the volume have a request wait; then [`Session::line`] tells when it passes.
    fn must_wait(&mut self, operation: Operation) -> bool {
        let (Some(throttle), Some(cost)) = (self.unit.device.throttle(), operation.limited_cost()) else {
            return false;
        };
        // One request waits at a time, and nothing behind it is read, so what it passed as is of no matter.
        throttle.is_limited()
            && !self.line.get_or_insert_with(|| Rc::new(throttle.line())).admit(0, cost, self.received)
    }

    /// Where a request waits for the limits of the volume.
    pub(crate) fn line(&self) -> Option<Rc<Line>> {
        self.line.clone()
    }

    /// The limits let the request through that waited for them.
    pub(crate) fn pass_limits(&mut self) {
        if let Stage::Limited(request, operation) = self.stage {
            self.stage = Stage::Request;
            self.let_in(request, operation);
        }
    }

    /// The connection is over: what waits for limits will not run, and nothing waits in this session's line any more.
    pub(crate) fn give_up_limited(&mut self) {
        if matches!(self.stage, Stage::Limited(..)) {
            self.stage = Stage::Request;
        }
        self.line = None;
    }

    /// Begins a request, or has it wait for room.
    fn let_in(&mut self, request: Request, operation: Operation) {
        if self.has_room(operation) {
            self.begin(&request, operation);
        } else {
            self.stage = Stage::Waiting(request, operation);
        }
    }

    fn begin(&mut self, request: &Request, operation: Operation) {
        assert!(self.outstanding < QUEUE_DEPTH, "NBD session: a request began that there is no place for");
        self.outstanding += 1;
        self.memory_bytes += operation.cost_bytes();
        self.note_memory();
        let cookie = request.cookie.get();
        match request.payload_bytes() as usize {
            0 => self.start(cookie, operation, Buf::default()),
            len => self.stage = Stage::Payload { cookie, operation, buf: Buf::unfilled(len), filled: 0 },
        }
    }

    fn start(&mut self, cookie: u64, operation: Operation, data: Buf) {
        if let Operation::Write(range) = operation {
            assert_eq!(
                range.len,
                data.len() as u64,
                "NBD request {cookie:#018x}: its data has another length"
            );
        }
        self.counted.written_bytes += data.len() as u64;
        // NOTE: looked at again: it may have waited for limits, for room and for its data.
        if operation.changes() && self.export.is_read_only() {
            return self.complete(Finished { cookie, operation, outcome: Err(Failure::read_only()) });
        }
        let (received, unit) = (self.received, self.unit.clone());
        self.started.push(Work { cookie, operation, data, received, unit });
    }

    /// Takes what some work came to.
    pub(crate) fn complete(&mut self, finished: Finished) {
        let Finished { cookie, operation, outcome } = finished;
        // What it held is free for others; its reply counts once it is queued.
        let cost_bytes = operation.cost_bytes();
        assert!(
            self.outstanding > 0 && self.memory_bytes >= cost_bytes,
            "NBD session: request {cookie:#018x} ended that was not counted"
        );
        self.outstanding -= 1;
        self.memory_bytes -= cost_bytes;
        match outcome {
            Ok(Outcome::Done) if self.structured => self.out.chunk(cookie, chunk::NONE, Last::Yes, &[], &[]),
            Ok(Outcome::Done) => self.out.simple(cookie, None, []),
            Ok(Outcome::Data(slices)) => self.data(cookie, operation, slices),
            Ok(Outcome::Extents(extents)) => self.extents(cookie, &extents),
            Err(failure) => {
                let Operation::Read { range, .. } = operation else { return self.fail(cookie, &failure) };
                // Where it was, as far as it lies in what was asked for.
                let within = |offset: u64| offset.clamp(range.offset, range.end().saturating_sub(1));
                self.fail(cookie, &Failure { offset: failure.offset.map(within), ..failure });
            }
        }
    }

    fn data(&mut self, cookie: u64, operation: Operation, slices: Vec<Slice>) {
        let Operation::Read { range, whole } = operation else { return };
        let len = slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
        assert_eq!(len, range.len, "NBD request {cookie:#018x}: another length was read than was asked for");
        if !self.structured {
            self.counted.read_bytes += range.len;
            return self.out.simple(cookie, None, slices);
        }
        // Structured replies say which parts are holes and send only the data of the others.
        let mut runs = runs(range.offset, slices);
        // A client that asked for one chunk (NBD_CMD_FLAG_DF) has holes sent as zeroes.
        if whole && runs.len() > 1 {
            let data = runs.into_iter().flat_map(|run| run.slices).collect();
            runs = VecDeque::from([Run { range, is_zero: false, slices: data }]);
        }
        if runs.is_empty() {
            return self.out.chunk(cookie, chunk::NONE, Last::Yes, &[], &[]);
        }
        while let Some(run) = runs.pop_front() {
            let last = if runs.is_empty() { Last::Yes } else { Last::No };
            let ByteRange { offset, len } = run.range;
            if run.is_zero {
                let hole = OffsetHole { offset: offset.into(), len_bytes: (len as u32).into() };
                self.out.chunk(cookie, chunk::OFFSET_HOLE, last, hole.as_bytes(), &[]);
            } else {
                self.counted.read_bytes += len;
                let offset = U64::from(offset);
                self.out.chunk(cookie, chunk::OFFSET_DATA, last, offset.as_bytes(), &run.slices);
            }
        }
    }

    fn extents(&mut self, cookie: u64, extents: &[Extent]) {
        let mut descriptors = Vec::with_capacity(extents.len() * BlockDescriptor::BYTES);
        for extent in extents {
            // Blocks that take no space read as zeroes.
            let flags = if extent.mapped { 0 } else { state::HOLE | state::ZERO };
            let descriptor =
                BlockDescriptor { len_bytes: (extent.range.len as u32).into(), flags: flags.into() };
            descriptors.extend_from_slice(descriptor.as_bytes());
        }
        let context = ALLOCATION_CONTEXT_ID.to_be_bytes();
        let descriptors = [Slice::copy_of(&descriptors)];
        self.out.chunk(cookie, chunk::BLOCK_STATUS, Last::Yes, &context, &descriptors);
    }

    fn fail(&mut self, cookie: u64, failure: &Failure) {
        self.counted.errors += 1;
        tracing::debug!(cookie, errno = ?failure.errno, message = failure.message, "request failed");
        if !self.structured {
            return self.out.simple(cookie, Some(failure.errno), []);
        }
        let message = &failure.message.as_bytes()[..failure.message.len().min(MAX_MESSAGE_BYTES)];
        let payload = ErrorPayload {
            error: (failure.errno as u32).into(),
            message_bytes: (message.len() as u16).into(),
        };
        // The chunk: error and message, and where it was if that is known.
        let (kind, offset) = match failure.offset {
            Some(offset) => (chunk::ERROR_OFFSET, offset.to_be_bytes().to_vec()),
            None => (chunk::ERROR, Vec::new()),
        };
        let rest = [Slice::copy_of(&[message, &offset].concat())];
        self.out.chunk(cookie, kind, Last::Yes, payload.as_bytes(), &rest);
    }
}

/// Neighbouring parts of a read that are all zeroes, or all not.
struct Run {
    range: ByteRange,
    is_zero: bool,
    slices: Vec<Slice>,
}

fn runs(mut offset: u64, slices: Vec<Slice>) -> VecDeque<Run> {
    let mut runs: VecDeque<Run> = VecDeque::new();
    for slice in slices {
        let (len, is_zero) = (slice.len() as u64, is_zero(&slice));
        // A slice that is like the one before it lengthens its run.
        match runs.back_mut().filter(|run| run.is_zero == is_zero) {
            Some(run) => {
                run.range.len += len;
                run.slices.push(slice);
            }
            None => {
                let range = ByteRange::new(offset, len);
                runs.push_back(Run { range, is_zero, slices: vec![slice] });
            }
        }
        offset += len;
    }
    runs
}

/// Stops at the first bytes that are not, so that data costs next to nothing.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}
