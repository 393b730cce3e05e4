//! Fixed newstyle negotiation as a state machine: bytes of options in, bytes of replies out.
//!
//! Invariants:
//! 1. Nothing negotiated before TLS began counts afterwards.
//! 2. Where TLS is required, a client without it learns nothing but that.
//! 3. What a [`Directory`] does not show is answered as what does not exist.

use crate::{
    options::{BadOption, ContextRequest, InfoRequest, string},
    wire::{
        BadMagic, EXPORT_NAME_PADDING_BYTES, ExportNameReply, Greeting, InfoBlockSize, InfoExport, NBD_MAGIC,
        OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, OptionReply, handshake_flag, info, option, reply,
        transmission_flag as flag,
    },
};
use thiserror::Error;
use zerocopy::IntoBytes;

/// The longest data of an option.
pub const MAX_OPTION_BYTES: usize = 64 * 1024;
/// The longest read or write.
pub const MAX_PAYLOAD_BYTES: u32 = 32 << 20;
/// The pool's block: the size that reads and writes are told to prefer.
const PREFERRED_BLOCK_BYTES: u32 = 8192;
/// The one metadata context there is, and its number.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";
/// The number of [`ALLOCATION_CONTEXT`].
pub const ALLOCATION_CONTEXT_ID: u32 = 1;

/// Whether a connection may or must be encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TlsMode {
    /// It cannot be.
    #[default]
    Off,
    /// The client chooses.
    Optional,
    /// It must be.
    Required,
}

/// What an export is, as told in negotiation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Size in bytes.
    pub size_bytes: u64,
    /// The volume's logical block.
    pub block_bytes: u32,
    /// Clients may only read.
    pub read_only: bool,
    /// What people are told about it.
    pub description: String,
}

/// What became of looking for an export.
pub enum Found<E> {
    /// The client may use it.
    Export(Offer, E),
    /// The client must first prove who it is.
    NeedsCertificate,
    /// There is none that this client may see.
    Nothing,
}

/// The exports, as one client sees them.
pub trait Directory {
    /// An export to be served.
    type Export;
    /// The names of those shown.
    fn names(&self) -> Vec<String>;
    /// The export of this name.
    fn find(&self, name: &str) -> Found<Self::Export>;
    /// The client asked for something that it may ask for only over TLS.
    fn needs_tls(&self) {}
}

/// What negotiation came to.
#[derive(Debug)]
pub struct Agreed<E> {
    /// The export to serve.
    pub export: E,
    /// Replies are structured.
    pub structured: bool,
    /// Block status may be asked for, in the context `base:allocation`.
    pub allocation: bool,
    /// The client knows the block sizes and keeps to them.
    pub constrained: bool,
}

/// What follows an option.
#[derive(Debug)]
pub enum Step<E> {
    /// The next one.
    Next,
    /// TLS, once what was answered so far is sent.
    StartTls,
    /// Transmission.
    Serve(Agreed<E>),
    /// The end, as the client wished.
    Abort,
}

/// What some bytes came to.
#[derive(Debug)]
pub enum Progress<E> {
    /// There must be so many of them first.
    Need(usize),
    /// So many of them were taken.
    Took(usize, Step<E>),
}

/// Why negotiation cannot go on.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum HandshakeError {
    /// The byte stream cannot be followed.
    #[error(transparent)]
    Magic(#[from] BadMagic),
    /// The client set flags that were not offered.
    #[error("it set unknown flags: {0:#x}")]
    UnknownFlags(u32),
    /// An option's data is too long.
    #[error("its option {option} has {data_bytes} bytes of data, more than {MAX_OPTION_BYTES}")]
    LongOption {
        /// The option.
        option: u32,
        /// Its length.
        data_bytes: u32,
    },
    /// The client does not understand replies to options, and sent another than `NBD_OPT_EXPORT_NAME`.
    #[error("it sent option {0}, and is too old for an answer to it")]
    NotFixed(u32),
    /// `NBD_OPT_EXPORT_NAME` names nothing that can be a name.
    #[error("it asked for an export whose name cannot be one: {0}")]
    BadExportName(BadOption),
    /// `NBD_OPT_EXPORT_NAME` has no answer but yes.
    #[error("it asked for export {name:?} in a way that allows no answer but yes: {why}")]
    ExportName {
        /// The export.
        name: String,
        /// Why not.
        why: &'static str,
    },
}

/// The server's side of a negotiation.
#[derive(Debug)]
pub struct Negotiation {
    tls: TlsMode,
    encrypted: bool,
    /// The client's flags, once they are there.
    flags: Option<u32>,
    structured: bool,
    /// The export for which `base:allocation` was selected.
    allocation_of: Option<String>,
}

impl Negotiation {
    /// A negotiation at its beginning.
    pub fn new(tls: TlsMode) -> Self {
        Self { tls, encrypted: false, flags: None, structured: false, allocation_of: None }
    }

    /// The first bytes to send.
    pub fn greeting() -> Greeting {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        Greeting { magic: NBD_MAGIC.into(), option_magic: OPTION_MAGIC.into(), flags: flags.into() }
    }

    /// TLS is established: negotiation starts over.
    pub fn encrypted(&mut self) {
        self.encrypted = true;
        self.structured = false;
        self.allocation_of = None;
    }

    /// Takes the next message of the client, if `bytes` holds all of it; answers go to `out`.
    ///
    /// # Errors
    /// The client sent unknown flags, a wrong magic number, an option that is too long or that it could take
    /// no reply to; or it asked by `NBD_OPT_EXPORT_NAME` for what it cannot have. The connection must be
    /// closed without an answer.
    pub fn receive<D: Directory>(
        &mut self,
        bytes: &[u8],
        directory: &D,
        out: &mut Vec<u8>,
    ) -> Result<Progress<D::Export>, HandshakeError> {
        // The client answers the greeting with its flags.
        let Some(flags) = self.flags else {
            let Some(flags) = bytes.first_chunk::<4>() else { return Ok(Progress::Need(4)) };
            let flags = u32::from_be_bytes(*flags);
            let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
            if flags & !known != 0 {
                return Err(HandshakeError::UnknownFlags(flags & !known));
            }
            self.flags = Some(flags);
            return Ok(Progress::Took(4, Step::Next));
        };
        // Options, one after the other, until one ends the negotiation.
        let Some(header) = OptionHeader::parse(bytes)? else {
            return Ok(Progress::Need(OptionHeader::BYTES));
        };
        let (option, data_bytes) = (header.option.get(), header.data_bytes.get());
        if data_bytes as usize > MAX_OPTION_BYTES {
            return Err(HandshakeError::LongOption { option, data_bytes });
        }
        let end = OptionHeader::BYTES + data_bytes as usize;
        let Some(data) = bytes.get(OptionHeader::BYTES..end) else { return Ok(Progress::Need(end)) };
        // Such a client takes no replies to options, so there is nothing to tell it with.
        if flags & u32::from(handshake_flag::FIXED_NEWSTYLE) == 0 && option != option::EXPORT_NAME {
            return Err(HandshakeError::NotFixed(option));
        }
        let mut answer = Answer { option, out };
        let step = match option {
            option::EXPORT_NAME => self.export_name(flags, data, directory, answer.out)?,
            option::ABORT => {
                answer.ack();
                Step::Abort
            }
            option::STARTTLS => self.start_tls(data, &mut answer),
            _ if self.needs_tls() => {
                directory.needs_tls();
                answer.error(reply::ERR_TLS_REQD, "this server requires TLS");
                Step::Next
            }
            _ => self.option(data, directory, &mut answer).unwrap_or_else(|bad| {
                let kind = match bad {
                    BadOption::LongString => reply::ERR_TOO_BIG,
                    _ => reply::ERR_INVALID,
                };
                answer.error(kind, &bad.to_string());
                Step::Next
            }),
        };
        Ok(Progress::Took(end, step))
    }

    fn needs_tls(&self) -> bool {
        self.tls == TlsMode::Required && !self.encrypted
    }

    fn start_tls<E>(&self, data: &[u8], answer: &mut Answer) -> Step<E> {
        if !data.is_empty() {
            answer.error(reply::ERR_INVALID, "it has data");
        } else if self.encrypted {
            answer.error(reply::ERR_INVALID, "TLS is established already");
        } else if self.tls == TlsMode::Off {
            answer.error(reply::ERR_POLICY, "this server is not set up for TLS");
        } else {
            answer.ack();
            return Step::StartTls;
        }
        Step::Next
    }

    fn export_name<D: Directory>(
        &self,
        flags: u32,
        data: &[u8],
        directory: &D,
        out: &mut Vec<u8>,
    ) -> Result<Step<D::Export>, HandshakeError> {
        let refuse = |name: &str, why| Err(HandshakeError::ExportName { name: name.to_owned(), why });
        // NOTE: this option has no reply that refuses: what cannot be had ends the connection.
        let name = string(data).map_err(HandshakeError::BadExportName)?;
        if self.needs_tls() {
            directory.needs_tls();
            return refuse(name, "TLS is required");
        }
        match directory.find(name) {
            Found::NeedsCertificate => refuse(name, "a certificate is required"),
            Found::Nothing => refuse(name, "there is none that this client may see"),
            Found::Export(offer, export) => {
                let flags_of = transmission_flags(&offer, self.structured);
                let answer = ExportNameReply { size_bytes: offer.size_bytes.into(), flags: flags_of.into() };
                out.extend_from_slice(answer.as_bytes());
                if flags & u32::from(handshake_flag::NO_ZEROES) == 0 {
                    out.extend_from_slice(&[0; EXPORT_NAME_PADDING_BYTES]);
                }
                Ok(self.serve(name, export, false))
            }
        }
    }

    fn option<D: Directory>(
        &mut self,
        data: &[u8],
        directory: &D,
        answer: &mut Answer,
    ) -> Result<Step<D::Export>, BadOption> {
        match answer.option {
            option::LIST => match data {
                [] => {
                    for name in directory.names() {
                        let len = (name.len() as u32).to_be_bytes();
                        answer.reply(reply::SERVER, &[&len, name.as_bytes()]);
                    }
                    answer.ack();
                }
                _ => return Err(BadOption::Long),
            },
            option::STRUCTURED_REPLY => match data {
                [] => {
                    self.structured = true;
                    answer.ack();
                }
                _ => return Err(BadOption::Long),
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(&ContextRequest::parse(data)?, directory, answer);
            }
            option::INFO | option::GO => {
                let request = InfoRequest::parse(data)?;
                return Ok(self.info(&request, directory, answer));
            }
            _ => answer.error(reply::ERR_UNSUP, "this server does not know the option"),
        }
        Ok(Step::Next)
    }

    fn contexts<D: Directory>(&mut self, request: &ContextRequest, directory: &D, answer: &mut Answer) {
        // A later selection takes the place of an earlier one, even if it is refused.
        let selects = answer.option == option::SET_META_CONTEXT;
        if selects {
            self.allocation_of = None;
        }
        if !self.structured {
            return answer.error(reply::ERR_INVALID, "structured replies must be negotiated first");
        }
        match directory.find(request.name) {
            Found::Export(..) => {}
            other => return self.refuse(&other, answer),
        }
        let matches = |query: &&str| *query == ALLOCATION_CONTEXT || !selects && *query == "base:";
        if request.queries.iter().any(matches) || !selects && request.queries.is_empty() {
            let id = if selects { ALLOCATION_CONTEXT_ID } else { 0 };
            answer.reply(reply::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION_CONTEXT.as_bytes()]);
            if selects {
                self.allocation_of = Some(request.name.to_owned());
            }
        }
        answer.ack();
    }

    fn info<D: Directory>(
        &self,
        request: &InfoRequest,
        directory: &D,
        answer: &mut Answer,
    ) -> Step<D::Export> {
        let (offer, export) = match directory.find(request.name) {
            Found::Export(offer, export) => (offer, export),
            other => {
                self.refuse(&other, answer);
                return Step::Next;
            }
        };
        // Name and description are told if they were asked for.
        let wants = |kind| request.kinds.contains(&kind);
        if wants(info::NAME) {
            answer.reply(reply::INFO, &[&info::NAME.to_be_bytes(), request.name.as_bytes()]);
        }
        if wants(info::DESCRIPTION) {
            answer.reply(reply::INFO, &[&info::DESCRIPTION.to_be_bytes(), offer.description.as_bytes()]);
        }
        // Block sizes and the export itself are told whether they were asked for or not.
        let sizes = InfoBlockSize {
            kind: info::BLOCK_SIZE.into(),
            minimum: offer.block_bytes.into(),
            preferred: PREFERRED_BLOCK_BYTES.into(),
            maximum: MAX_PAYLOAD_BYTES.into(),
        };
        answer.reply(reply::INFO, &[sizes.as_bytes()]);
        let flags = transmission_flags(&offer, self.structured);
        let about = InfoExport {
            kind: info::EXPORT.into(),
            size_bytes: offer.size_bytes.into(),
            flags: flags.into(),
        };
        answer.reply(reply::INFO, &[about.as_bytes()]);
        answer.ack();
        match answer.option {
            option::GO => self.serve(request.name, export, wants(info::BLOCK_SIZE)),
            _ => Step::Next,
        }
    }

    fn refuse<E>(&self, found: &Found<E>, answer: &mut Answer) {
        match found {
            Found::NeedsCertificate if !self.encrypted => {
                answer.error(reply::ERR_TLS_REQD, "this export requires TLS and a client certificate");
            }
            Found::NeedsCertificate => {
                answer.error(reply::ERR_POLICY, "this export requires a client certificate");
            }
            _ => {
                answer.error(reply::ERR_UNKNOWN, "there is no such export, or it is not shown to this client")
            }
        }
    }

    fn serve<E>(&self, name: &str, export: E, constrained: bool) -> Step<E> {
        let allocation = self.allocation_of.as_deref() == Some(name);
        Step::Serve(Agreed { export, structured: self.structured, allocation, constrained })
    }
}

/// What an export can do. Every write is hardened before it is answered, so that what one connection was told is
/// true for all of them: `CAN_MULTI_CONN` holds by construction.
fn transmission_flags(offer: &Offer, structured: bool) -> u16 {
    let always =
        flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN | flag::SEND_CACHE;
    let access = if offer.read_only {
        flag::READ_ONLY
    } else {
        flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO
    };
    always | access | if structured { flag::SEND_DF } else { 0 }
}

/// Where the replies to an option go.
struct Answer<'a> {
    option: u32,
    out: &'a mut Vec<u8>,
}

impl Answer<'_> {
    fn reply(&mut self, kind: u32, data: &[&[u8]]) {
        let data_bytes = data.iter().map(|part| part.len()).sum::<usize>() as u32;
        let header = OptionReply {
            magic: OPTION_REPLY_MAGIC.into(),
            option: self.option.into(),
            kind: kind.into(),
            data_bytes: data_bytes.into(),
        };
        self.out.extend_from_slice(header.as_bytes());
        data.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    fn ack(&mut self) {
        self.reply(reply::ACK, &[]);
    }

    fn error(&mut self, kind: u32, message: &str) {
        self.reply(kind, &[message.as_bytes()]);
    }
}
