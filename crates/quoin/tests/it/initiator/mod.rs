//! A small iSCSI initiator: one command at a time, data within the command, and the sense that came back.

use quoin_iscsi::pdu::{
    AsyncMessage, Bhs, DataIn, LoginRequest, LoginResponse, ScsiCommand, ScsiResponse, U24, opcode, padding,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};
use zerocopy::IntoBytes;

/// The most bytes of one write or read here.
pub(crate) const LONGEST_BYTES: usize = 64 << 10;
pub(crate) const BLOCK_BYTES: u64 = 512;

/// Sense key, additional sense code and its qualifier.
pub(crate) type Sense = (u8, u8, u8);

/// UNIT ATTENTION: something changed; the command is sent again.
const ATTENTION: u8 = 0x6;

/// What stands for a sense where another initiator has reserved the unit.
pub(crate) const CONFLICT: Sense = (0xFF, 0x18, 0);

pub(crate) struct Initiator {
    stream: TcpStream,
    cmd_sn: u32,
    block_bytes: u64,
}

impl Initiator {
    pub(crate) fn login(portal: &str, target: &str, name: &str) -> Initiator {
        let (initiator, response) = Self::ask(portal, target, name);
        assert_eq!((response.status_class, response.status_detail), (0, 0));
        initiator
    }

    /// The same, for units of this logical block.
    pub(crate) fn with_block_bytes(self, block_bytes: u64) -> Initiator {
        Initiator { block_bytes, ..self }
    }

    /// Status-Class and Status-Detail of a login that need not succeed.
    pub(crate) fn login_status(portal: &str, target: &str, name: &str) -> (u8, u8) {
        let (_, response) = Self::ask(portal, target, name);
        (response.status_class, response.status_detail)
    }

    fn ask(portal: &str, target: &str, name: &str) -> (Initiator, LoginResponse) {
        let stream = TcpStream::connect(portal).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut initiator = Initiator { stream, cmd_sn: 1, block_bytes: BLOCK_BYTES };
        let request = LoginRequest {
            opcode: 0x40 | opcode::LOGIN_REQUEST,
            flags: 0x87,
            isid: [0x80, 0, 0, 0, 0, 1],
            cmd_sn: 1.into(),
            ..LoginRequest::default()
        };
        let keys = format!("InitiatorName={name}\0TargetName={target}\0MaxRecvDataSegmentLength=262144\0");
        initiator.send(request, keys.as_bytes());
        let response = LoginResponse::from(initiator.receive().0);
        (initiator, response)
    }

    pub(crate) fn write(&mut self, lun: u8, offset: u64, data: &[u8]) -> Result<(), Sense> {
        self.execute(lun, &self.cdb(0x8A, offset, data.len()), data, 0).map(drop)
    }

    pub(crate) fn read(&mut self, lun: u8, offset: u64, len: usize) -> Result<Vec<u8>, Sense> {
        self.execute(lun, &self.cdb(0x88, offset, len), &[], len)
    }

    pub(crate) fn unmap(&mut self, lun: u8, offset: u64, len: u64) -> Result<(), Sense> {
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend((offset / self.block_bytes).to_be_bytes());
        list.extend(((len / self.block_bytes) as u32).to_be_bytes());
        list.extend([0; 4]);
        self.execute(lun, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list, 0).map(drop)
    }

    /// What TEST UNIT READY answers; `None` if the unit is ready.
    pub(crate) fn attention(&mut self, lun: u8) -> Option<Sense> {
        self.execute_once(lun, &[0; 6], &[], 0).err()
    }

    /// PERSISTENT RESERVE OUT, with APTPL.
    pub(crate) fn reserve_out(
        &mut self,
        lun: u8,
        (action, kind): (u8, u8),
        key: u64,
        action_key: u64,
    ) -> Result<(), Sense> {
        let list = [&key.to_be_bytes()[..], &action_key.to_be_bytes(), &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
        self.execute(lun, &[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list, 0).map(drop)
    }

    /// The keys that are registered, by PERSISTENT RESERVE IN.
    pub(crate) fn reservation_keys(&mut self, lun: u8) -> Vec<u64> {
        let data = self.execute(lun, &[0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[], 256).unwrap();
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        data[8..8 + number(&data[4..8]) as usize].chunks(8).map(number).collect()
    }

    /// What INQUIRY says of the unit's identity (VPD page 83h).
    pub(crate) fn identity(&mut self, lun: u8) -> Vec<u8> {
        self.execute(lun, &[0x12, 1, 0x83, 0, 255, 0], &[], 255).unwrap()
    }

    fn execute(&mut self, lun: u8, cdb: &[u8], data: &[u8], read_bytes: usize) -> Result<Vec<u8>, Sense> {
        loop {
            match self.execute_once(lun, cdb, data, read_bytes) {
                Err((ATTENTION, ..)) => {}
                outcome => return outcome,
            }
        }
    }

    fn execute_once(
        &mut self,
        lun: u8,
        cdb: &[u8],
        data: &[u8],
        read_bytes: usize,
    ) -> Result<Vec<u8>, Sense> {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let flags = match (read_bytes, data.len()) {
            (0, 0) => 0x80,
            (0, _) => 0xA0,
            _ => 0xC0,
        };
        let command = ScsiCommand {
            opcode: opcode::SCSI_COMMAND,
            flags,
            lun: [0, lun, 0, 0, 0, 0, 0, 0],
            itt: self.cmd_sn.into(),
            expected_bytes: (read_bytes.max(data.len()) as u32).into(),
            cmd_sn: self.cmd_sn.into(),
            cdb: padded,
            ..ScsiCommand::default()
        };
        self.cmd_sn += 1;
        self.send(command, data);
        let mut read = Vec::new();
        loop {
            let (bhs, data) = self.receive();
            match bhs.operation() {
                opcode::DATA_IN => {
                    read.extend(data);
                    if DataIn::from(bhs).flags & 1 != 0 {
                        return Ok(read);
                    }
                }
                opcode::SCSI_RESPONSE => match ScsiResponse::from(bhs).status {
                    0 => return Ok(read),
                    // The sense follows its length.
                    2 => return Err((data[4] & 0xF, data[14], data[15])),
                    0x18 => return Err(CONFLICT),
                    status => panic!("status {status:#x} for {cdb:x?}"),
                },
                other => panic!("unexpected PDU {other:#x}"),
            }
        }
    }

    /// Waits until the target asks for a logout.
    pub(crate) fn is_asked_to_log_out(&mut self) {
        let message = AsyncMessage::from(self.receive().0);
        assert_eq!((message.opcode, message.event), (opcode::ASYNC_MESSAGE, 1));
    }

    fn send(&mut self, header: impl Into<Bhs>, data: &[u8]) {
        let mut bytes = Bhs { data_len: U24::new(data.len()), ..header.into() }.as_bytes().to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + padding(data.len()), 0);
        self.stream.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> (Bhs, Vec<u8>) {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header).unwrap();
        let bhs = Bhs::parse(&header).unwrap();
        let len = bhs.data_len.get();
        let mut data = vec![0; len + padding(len)];
        self.stream.read_exact(&mut data).unwrap();
        data.truncate(len);
        (bhs, data)
    }

    /// READ (16) or WRITE (16).
    fn cdb(&self, code: u8, offset: u64, len: usize) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[0] = code;
        cdb[2..10].copy_from_slice(&(offset / self.block_bytes).to_be_bytes());
        cdb[10..14].copy_from_slice(&((len as u64 / self.block_bytes) as u32).to_be_bytes());
        cdb
    }
}
