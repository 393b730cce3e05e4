//! A client for what well-behaved initiators do not do.

use super::{INITIATOR, Server, TARGET};
use quoin_iscsi::pdu::{
    Bhs, DataIn, LoginRequest, LoginResponse, NO_TAG, NopIn, NopOut, ScsiCommand, ScsiResponse, U24, opcode,
    padding,
};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};
use zerocopy::IntoBytes;

/// A client that builds its PDUs byte by byte.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) cmd_sn: u32,
    pub(crate) itt: u32,
}

pub(crate) fn crc(bytes: &[u8]) -> [u8; 4] {
    quoin_base::crc32c(bytes).0.to_le_bytes()
}

impl Client {
    pub(crate) fn connect(server: &Server) -> Client {
        Self::over(TcpStream::connect(server.address).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, cmd_sn: 1, itt: 1 }
    }

    pub(crate) fn send(&mut self, header: impl Into<Bhs>, data: &[u8]) {
        self.try_send(header, data).unwrap();
    }

    pub(crate) fn try_send(&mut self, header: impl Into<Bhs>, data: &[u8]) -> io::Result<()> {
        let mut bytes = Bhs { data_len: U24::new(data.len()), ..header.into() }.as_bytes().to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + padding(data.len()), 0);
        self.stream.write_all(&bytes)
    }

    pub(crate) fn receive(&mut self) -> (Bhs, Vec<u8>) {
        self.try_receive().unwrap()
    }

    /// The next PDU that is not a ping; pings are answered.
    pub(crate) fn try_receive(&mut self) -> io::Result<(Bhs, Vec<u8>)> {
        loop {
            let mut header = [0; 48];
            self.stream.read_exact(&mut header)?;
            let bhs = Bhs::parse(&header).unwrap();
            let len = bhs.data_len.get();
            let mut data = vec![0; len + padding(len)];
            self.stream.read_exact(&mut data)?;
            data.truncate(len);
            let ping = NopIn::from(bhs);
            if bhs.operation() != opcode::NOP_IN || ping.ttt.get() == NO_TAG {
                return Ok((bhs, data));
            }
            self.try_send(NopOut { ttt: ping.ttt, ..self.word() }, &[])?;
        }
    }

    /// An immediate NOP-Out that wants no answer.
    pub(crate) fn word(&self) -> NopOut {
        NopOut {
            opcode: 0x40 | opcode::NOP_OUT,
            flags: 0x80,
            itt: NO_TAG.into(),
            ttt: NO_TAG.into(),
            cmd_sn: self.cmd_sn.into(),
            ..NopOut::default()
        }
    }

    /// True if everything sent so far was taken and nothing else is to be said of it: a ping is what comes back next.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let ping = NopOut { itt: 0xABCD.into(), ..self.word() };
        self.send(ping, &[]);
        let (bhs, _) = self.receive();
        (bhs.operation(), bhs.itt.get()) == (opcode::NOP_IN, 0xABCD)
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }

    pub(crate) fn login(&mut self, isid: u8, keys: &str) -> LoginResponse {
        self.login_as(INITIATOR, isid, 0, 0, keys)
    }

    pub(crate) fn login_as(
        &mut self,
        initiator: &str,
        isid: u8,
        tsih: u16,
        cid: u16,
        keys: &str,
    ) -> LoginResponse {
        let names = format!("InitiatorName={initiator}\0TargetName={TARGET}\0{keys}");
        let request = LoginRequest {
            opcode: 0x40 | opcode::LOGIN_REQUEST,
            flags: 0x87,
            isid: [0x80, 0, 0, 0, 0, isid],
            tsih: tsih.into(),
            cid: cid.into(),
            cmd_sn: self.cmd_sn.into(),
            ..LoginRequest::default()
        };
        self.send(request, names.as_bytes());
        let (bhs, _) = self.receive();
        assert_eq!(bhs.operation(), opcode::LOGIN_RESPONSE);
        bhs.into()
    }

    pub(crate) fn logged_in(server: &Server, isid: u8, keys: &str) -> Client {
        let mut client = Client::connect(server);
        let response = client.login(isid, keys);
        assert_eq!((response.status_class, response.status_detail), (0, 0));
        client
    }

    pub(crate) fn command(&mut self, flags: u8, expected_bytes: u32, cdb: &[u8]) -> ScsiCommand {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let command = ScsiCommand {
            opcode: opcode::SCSI_COMMAND,
            flags,
            itt: self.itt.into(),
            expected_bytes: expected_bytes.into(),
            cmd_sn: self.cmd_sn.into(),
            cdb: padded,
            ..ScsiCommand::default()
        };
        self.itt += 1;
        self.cmd_sn += 1;
        command
    }

    /// Sends a command without data and returns its status and what it read.
    pub(crate) fn execute(&mut self, expected_bytes: u32, cdb: &[u8]) -> (u8, Vec<u8>) {
        let command = self.command(0xC0, expected_bytes, cdb);
        self.send(command, &[]);
        let mut read = Vec::new();
        loop {
            let (bhs, data) = self.receive();
            match bhs.operation() {
                opcode::DATA_IN => {
                    let pdu = DataIn::from(bhs);
                    assert_eq!(pdu.offset.get() as usize, read.len());
                    read.extend(data);
                    if pdu.flags & 1 != 0 {
                        return (pdu.status, read);
                    }
                }
                opcode::SCSI_RESPONSE => return (ScsiResponse::from(bhs).status, read),
                other => panic!("unexpected PDU {other:#x}"),
            }
        }
    }

    /// Takes the unit attention that every session starts with.
    pub(crate) fn ready(mut self) -> Client {
        assert_eq!(self.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 2);
        assert_eq!(self.execute(0, &[0x00, 0, 0, 0, 0, 0]).0, 0);
        self
    }
}

pub(crate) fn write_10(lba: u32, blocks: u16) -> [u8; 10] {
    let (lba, blocks) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [0x2A, 0, lba[0], lba[1], lba[2], lba[3], 0, blocks[0], blocks[1], 0]
}

pub(crate) fn read_10(lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = write_10(lba, blocks);
    cdb[0] = 0x28;
    cdb
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}
