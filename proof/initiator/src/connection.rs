//! One iSCSI session over one TCP connection, from login to logout. `Sender` numbers and queues what goes out;
//! `Connection` moves bytes. Nothing here blocks on sending while the target may be blocked on us.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::pdu::{
    Event, FINAL, Header, MAX_SEGMENT_BYTES, NO_TAG, Parser, SegmentTooLong, decode_text, encode_text, opcode,
};
use crate::sender::Sender;

/// A target that says nothing for this long is taken for dead.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
const RECEIVE_BYTES: usize = 512 << 10;

/// Where and as whom to log in, and what to ask for.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Address of the portal.
    pub portal: SocketAddr,
    /// The target's name.
    pub target: String,
    /// Name to log in as.
    pub initiator: String,
    /// Logical unit number.
    pub lun: u16,
}

/// What both sides agreed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) immediate_data: bool,
    pub(crate) first_burst: u32,
    /// Longest data segment the target takes.
    pub(crate) send_segment: u32,
}

impl Negotiated {
    /// The values that hold where a key is not negotiated (RFC 7143 §13).
    const DEFAULT: Negotiated = Negotiated { immediate_data: true, first_burst: 65536, send_segment: 8192 };

    fn take(&mut self, pairs: &[(String, String)]) {
        for (key, value) in pairs {
            let number = value.parse::<u32>().ok().filter(|number| *number >= 512);
            match (key.as_str(), number) {
                ("ImmediateData", _) => self.immediate_data = value == "Yes",
                ("FirstBurstLength", Some(bytes)) => self.first_burst = bytes,
                ("MaxRecvDataSegmentLength", Some(bytes)) => self.send_segment = bytes.min(MAX_SEGMENT_BYTES),
                _ => {}
            }
        }
    }
}

/// Size of the logical unit.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of each: 512 or 4096.
    pub block_bytes: u32,
}

impl Capacity {
    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }
}

/// Why the target would not do a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sense {
    pub(crate) status: u8,
    pub(crate) key: u8,
    pub(crate) code: u8,
    pub(crate) qualifier: u8,
}

impl Sense {
    /// Reads a SCSI response PDU and its data segment, fixed or descriptor format (SPC-5 §4.4).
    pub(crate) fn of(response: &Header, segment: &[u8]) -> Sense {
        let sense = segment.get(2..).unwrap_or_default();
        let at = |index: usize| sense.get(index).copied().unwrap_or(0);
        let (key, code, qualifier) =
            if at(0) & 0x7e == 0x72 { (at(1), at(2), at(3)) } else { (at(2), at(12), at(13)) };
        Sense { status: response.0[3], key: key & 0xf, code, qualifier }
    }

    /// The target has no room for the command now.
    pub(crate) fn is_task_set_full(&self) -> bool {
        self.status == 0x28
    }

    pub(crate) fn is_unit_attention(&self) -> bool {
        self.status == 0x02 && self.key == 0x06
    }
}

impl std::fmt::Display for Sense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sense { status, key, code, qualifier } = self;
        write!(f, "SCSI status {status:#04x}, sense key {key:#x}, code {code:02x}/{qualifier:02x}")
    }
}

/// A logged-in session.
pub struct Connection {
    socket: TcpStream,
    parser: Parser,
    receive: Box<[u8]>,
    pub(crate) sender: Sender,
}

impl Connection {
    /// Connects and logs in; `number` tells sessions of this process apart.
    pub fn login(endpoint: &Endpoint, number: u16) -> Result<Connection> {
        let socket =
            TcpStream::connect_timeout(&endpoint.portal, Duration::from_secs(5)).with_context(|| {
                format!("cannot connect to the portal {}; is the target running?", endpoint.portal)
            })?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SILENCE_LIMIT))?;
        let mut connection = Connection {
            socket,
            parser: Parser::new(),
            receive: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            sender: Sender::new(endpoint.lun, Negotiated::DEFAULT),
        };
        connection
            .negotiate(endpoint, number)
            .with_context(|| format!("login to {} at {} failed", endpoint.target, endpoint.portal))?;
        Ok(connection)
    }

    fn negotiate(&mut self, endpoint: &Endpoint, number: u16) -> Result<()> {
        let mut stage = 0;
        let mut keys = vec![
            ("InitiatorName", endpoint.initiator.clone()),
            ("TargetName", endpoint.target.clone()),
            ("SessionType", "Normal".to_owned()),
            ("AuthMethod", "None".to_owned()),
        ];
        for _ in 0..16 {
            let next = if stage == 0 { 1 } else { 3 };
            let text = encode_text(&keys);
            self.sender.push_login(FINAL | stage << 2 | next, number, &text);
            let (reply, data) = self.next_pdu()?;
            ensure!(reply.opcode() == opcode::LOGIN_RESPONSE, "the target answered the login with {reply:?}");
            let (class, detail) = (reply.0[36], reply.0[37]);
            ensure!(
                class == 0,
                "the target refused: {} ({class:02x}{detail:02x})",
                login_status(class, detail)
            );
            self.sender.agreed.take(&decode_text(&data));
            keys.clear();
            if reply.flags() & FINAL != 0 {
                stage = reply.flags() & 3;
                match stage {
                    1 => keys = operational_keys(),
                    3 => return Ok(()),
                    other => bail!("the target wants to go to stage {other}, which there is not"),
                }
            }
        }
        bail!("the target never ended the negotiation")
    }

    /// Runs one command that is alone on the session and returns what it read.
    pub(crate) fn command(&mut self, cdb: [u8; 16], expect_bytes: u32) -> Result<Result<Vec<u8>, Sense>> {
        self.sender.push_command(0, cdb, expect_bytes, None);
        let mut read = Vec::new();
        loop {
            let (reply, mut body) = self.next_pdu()?;
            match reply.opcode() {
                opcode::DATA_IN => {
                    read.append(&mut body);
                    if reply.flags() & 1 != 0 {
                        return Ok(if reply.0[3] == 0 { Ok(read) } else { Err(Sense::of(&reply, &[])) });
                    }
                }
                opcode::RESPONSE if reply.0[2] == 0 && reply.0[3] == 0 => return Ok(Ok(read)),
                opcode::RESPONSE => return Ok(Err(Sense::of(&reply, &body))),
                _ => bail!("the target sent {reply:?} while a single command was running"),
            }
        }
    }

    /// Waits until the unit is ready (unit attentions are read away) and asks for its size.
    pub fn capacity(&mut self) -> Result<Capacity> {
        let lun = self.sender.lun;
        let mut refusal = None;
        for _ in 0..32 {
            match self.command([0; 16], 0)? {
                Ok(_) => {
                    refusal = None;
                    break;
                }
                Err(sense) => refusal = Some(sense),
            }
            std::thread::sleep(Duration::from_millis(if refusal.is_some_and(|s| s.key == 2) {
                100
            } else {
                1
            }));
        }
        if let Some(sense) = refusal {
            bail!("LUN {lun} does not become ready: {sense}; is it mapped to this initiator name?");
        }
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32); // READ CAPACITY (16), SBC-4 §5.22
        let mut answer = self.command(cdb, 32)?;
        for _ in 0..8 {
            // A notice that came between the two commands, not a refusal.
            if !answer.as_ref().is_err_and(Sense::is_unit_attention) {
                break;
            }
            answer = self.command(cdb, 32)?;
        }
        let data = answer.map_err(|sense| anyhow!("READ CAPACITY (16) of LUN {lun}: {sense}"))?;
        ensure!(data.len() >= 12, "READ CAPACITY (16) of LUN {lun} returned {} bytes only", data.len());
        let (last, rest) = data.split_first_chunk::<8>().expect("checked above");
        let block_bytes = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        ensure!(
            matches!(block_bytes, 512 | 4096),
            "LUN {lun} has blocks of {block_bytes} bytes, not 512 or 4096"
        );
        Ok(Capacity { blocks: u64::from_be_bytes(*last) + 1, block_bytes })
    }

    /// The next PDU in full; for what is not pipelined.
    fn next_pdu(&mut self) -> Result<(Header, Vec<u8>)> {
        let mut found = None;
        let mut body = Vec::new();
        while found.is_none() {
            self.flush::<&[u8]>(&[])?;
            if self.wait_for_input(None)? {
                self.receive(|_, header, event| {
                    match event {
                        Event::Data { bytes, .. } => body.extend_from_slice(bytes),
                        Event::End => {
                            ensure!(found.is_none(), "the target answered one request with two PDUs at once");
                            found = Some(*header);
                        }
                    }
                    Ok(())
                })?;
            }
        }
        Ok((found.expect("the loop ends with one"), body))
    }

    /// Sends what can be sent now without blocking; `slots` are the commands' buffers.
    pub(crate) fn flush<T: AsRef<[u8]>>(&mut self, slots: &[T]) -> Result<()> {
        self.sender.flush(&self.socket, slots).context("the connection broke while sending")
    }

    /// Waits until there is something to read (true), or there is room to send more or that time has come (false).
    pub(crate) fn wait_for_input(&self, until: Option<Instant>) -> Result<bool> {
        if self.sender.is_empty() && until.is_none() {
            return Ok(true); // the read itself blocks
        }
        let out = if self.sender.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN | out)];
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let limit = Timespec::try_from(left.unwrap_or(SILENCE_LIMIT))?;
        match poll(&mut fds, Some(&limit)) {
            Ok(0) if until.is_some() => Ok(false),
            Ok(0) => bail!("the target neither took nor sent a byte for {} s", SILENCE_LIMIT.as_secs()),
            Ok(_) => Ok(!fds[0].revents().difference(PollFlags::OUT).is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads once and hands over what came, save what concerns the session itself.
    pub(crate) fn receive(
        &mut self,
        mut on: impl FnMut(&mut Sender, &Header, Event<'_>) -> Result<()>,
    ) -> Result<()> {
        let got = match self.socket.read(&mut self.receive) {
            Ok(0) => bail!("the target closed the connection"),
            Ok(got) => got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                bail!("the target sent nothing for {} s", SILENCE_LIMIT.as_secs())
            }
            Err(error) => return Err(error).context("the connection broke while receiving"),
        };
        let sender = &mut self.sender;
        self.parser.feed::<Failure>(&self.receive[..got], |header, event| {
            if let Event::End = event {
                sender.observe(header);
                match header.opcode() {
                    opcode::REJECT => {
                        return Err(anyhow!("the target rejected a PDU, reason {:#04x}", header.0[2]).into());
                    }
                    opcode::ASYNC => {
                        return Err(anyhow!("the target announced event {}", header.0[36]).into());
                    }
                    opcode::NOP_IN => {
                        if header.u32_at(20) != NO_TAG {
                            sender.push_nop_reply(header);
                        }
                        return Ok(());
                    }
                    _ => {}
                }
            } else if matches!(header.opcode(), opcode::REJECT | opcode::ASYNC | opcode::NOP_IN) {
                return Ok(());
            }
            on(sender, header, event).map_err(Failure)
        })?;
        Ok(())
    }

    /// Ends the session politely.
    pub fn logout(mut self) -> Result<()> {
        self.sender.push_logout();
        let (reply, _) = self.next_pdu()?;
        ensure!(reply.opcode() == opcode::LOGOUT_RESPONSE, "the target answered the logout with {reply:?}");
        Ok(())
    }
}

/// Lets the parser's own error and ours travel together.
struct Failure(anyhow::Error);

impl From<SegmentTooLong> for Failure {
    fn from(SegmentTooLong(bytes): SegmentTooLong) -> Failure {
        Failure(anyhow!(
            "the target sent a data segment of {bytes} bytes, more than {MAX_SEGMENT_BYTES} declared"
        ))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure(error)
    }
}

impl From<Failure> for anyhow::Error {
    fn from(Failure(error): Failure) -> anyhow::Error {
        error
    }
}

fn operational_keys() -> Vec<(&'static str, String)> {
    [
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("MaxConnections", "1"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxRecvDataSegmentLength", "1048576"),
        ("MaxBurstLength", "1048576"),
        ("FirstBurstLength", "262144"),
        ("DefaultTime2Wait", "2"),
        ("DefaultTime2Retain", "0"),
        ("MaxOutstandingR2T", "16"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
        ("ErrorRecoveryLevel", "0"),
    ]
    .map(|(key, value)| (key, value.to_owned()))
    .into()
}

fn login_status(class: u8, detail: u8) -> &'static str {
    match (class, detail) {
        (1, _) => "it redirects to another portal, which this tool does not follow",
        (2, 1) => "authentication failed",
        (2, 2) => "this initiator name is not allowed",
        (2, 3) => "it has no target of that name",
        (2, _) => "it found fault with the request",
        (3, _) => "it cannot serve now",
        _ => "unknown reason",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_target_answers_replaces_the_defaults() {
        let mut agreed = Negotiated::DEFAULT;
        agreed.take(&decode_text(
            b"ImmediateData=No\0FirstBurstLength=131072\0MaxRecvDataSegmentLength=16777215\0Other=1\0",
        ));
        assert_eq!(
            agreed,
            Negotiated { immediate_data: false, first_burst: 131_072, send_segment: MAX_SEGMENT_BYTES }
        );
        agreed.take(&[
            ("FirstBurstLength".into(), "0".into()),
            ("MaxRecvDataSegmentLength".into(), "x".into()),
        ]);
        assert_eq!(agreed.first_burst, 131_072);
    }

    #[test]
    fn sense_is_read_in_both_formats_and_never_out_of_bounds() {
        let mut header = Header::new(opcode::RESPONSE, FINAL);
        header.0[3] = 2;
        let mut fixed = [0; 20];
        (fixed[2], fixed[4], fixed[14], fixed[15]) = (0x70, 0x06, 0x29, 0x01);
        let sense = Sense::of(&header, &fixed);
        assert!(sense.is_unit_attention());
        assert_eq!((sense.code, sense.qualifier), (0x29, 1));
        let descriptor = Sense::of(&header, &[0, 8, 0x72, 0x07, 0x27, 0x07]);
        assert_eq!((descriptor.key, descriptor.code, descriptor.qualifier), (7, 0x27, 7));
        for len in 0..4 {
            Sense::of(&header, &fixed[..len]);
        }
    }
}
