//! A small NBD client: one request at a time, simple replies.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

const OPTION_MAGIC: &[u8] = b"IHAVEOPT";
const OPTION_EXPORT_NAME: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const WRITE: u16 = 1;
/// Fixed newstyle, no zeroes.
const FLAGS: u32 = 3;

pub(crate) struct NbdClient {
    stream: TcpStream,
    cookie: u64,
}

impl NbdClient {
    pub(crate) fn connect(address: &str, export: &str) -> NbdClient {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // Two magics and the server's flags.
        stream.read_exact(&mut [0; 18]).unwrap();
        let mut hello = FLAGS.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC);
        hello.extend(OPTION_EXPORT_NAME.to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        stream.write_all(&hello).unwrap();
        // The size and the transmission flags.
        stream.read_exact(&mut [0; 10]).unwrap();
        NbdClient { stream, cookie: 0 }
    }

    /// Returns once the write is acknowledged.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.cookie += 1;
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend([0, 0]);
        request.extend(WRITE.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend((data.len() as u32).to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request).unwrap();
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], REPLY_MAGIC.to_be_bytes());
        assert_eq!(reply[4..8], [0; 4], "the write failed");
        assert_eq!(reply[8..], self.cookie.to_be_bytes());
    }
}
