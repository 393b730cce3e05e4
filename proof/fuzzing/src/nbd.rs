//! A whole NBD connection: requests of a client, over a real connection, to a real server with a volume in RAM,
//! beside a model of its content.

use crate::{Target, input::Input, ram::ram};
use quoin_nbd::{
    Accepted, Listener, NbdServer, Options,
    wire::{
        Chunk, OPTION_MAGIC, OptionHeader, OptionReply, REPLY_FLAG_DONE, REQUEST_MAGIC, Request,
        SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, SimpleReply, chunk, command, option, reply,
    },
};
use quoin_ram_device::RamDevice;
use quoin_target::{Access, ExportRules, Exports};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{LocalSet, spawn_local},
};
use zerocopy::{FromBytes, IntoBytes};

/// Requests of a client, or all its bytes.
pub(crate) const CONNECTION: Target = Target {
    name: "nbd_connection",
    about: "a byte of modes, then requests: type, flags, offset, length, what is written; negotiation goes before",
    run,
    seeds,
    words: || {
        let words: [&[u8]; 6] =
            [&[0x25, 0x60, 0x95, 0x13], b"IHAVEOPT", &[0, 16], &[0, 2], &[0, 128], &[0xFF; 4]];
        words.map(<[u8]>::to_vec).to_vec()
    },
    mutations: 200,
};

const STRUCTURED: u8 = 0x01;
const READ_ONLY: u8 = 0x02;
/// Block status is agreed on.
const ALLOCATION: u8 = 0x04;
/// The client asks for the block sizes, and so has to keep to them.
const CONSTRAINED: u8 = 0x08;
/// What the input says is sent as it is, from the first byte on.
const RAW: u8 = 0x10;
/// All requests go out before the first reply is looked at; otherwise each waits for the one before.
const AT_ONCE: u8 = 0x20;
/// Blocks of 4096 bytes.
const LARGE_BLOCKS: u8 = 0x40;

/// Nothing here takes long; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(20);
const MOST_REQUESTS: usize = 200;
/// More than any answer to bytes that make no sense comes to.
const MOST_ANSWER_BYTES: usize = 64 << 20;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.u8();
    let script = input.rest();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { panic!("no runtime: {:?}", runtime.err()) };
    LocalSet::new().block_on(&runtime, async {
        let ended = tokio::time::timeout(PATIENCE, converse(mode, script)).await;
        ended.expect("the connection hangs").expect("loopback works, and replies are whole");
    });
}

async fn converse(mode: u8, script: &[u8]) -> io::Result<()> {
    let volume = Arc::new(ram(if mode & LARGE_BLOCKS != 0 { 4096 } else { 512 }));
    let exports = Arc::new(Exports::default());
    let access = if mode & READ_ONLY != 0 { Access::ReadOnly } else { Access::Default };
    exports.set("v", volume.clone(), ExportRules::default(), access);
    let server = NbdServer::new(exports, None, Options::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (send, mut connections) = tokio::sync::mpsc::unbounded_channel();
    let accepting = {
        let server = server.clone();
        let hand_over = move |accepted: Accepted<RamDevice>| drop(send.send(spawn_local(accepted.serve())));
        spawn_local(async move { server.accept(Listener::Tcp(listener), hand_over).await })
    };
    let stream = TcpStream::connect(address).await?;
    // No port is left waiting behind: there are many inputs.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    let mut client = Client { stream, mode, volume };
    let outcome =
        if mode & RAW != 0 { client.send_raw(script).await } else { client.send_requests(script).await };
    drop(client);
    let connection = connections.recv().await.expect("a connection was accepted");
    connection.await.expect("a connection panicked");
    server.shutdown().await;
    accepting.abort();
    outcome
}

struct Client {
    stream: TcpStream,
    mode: u8,
    volume: Arc<RamDevice>,
}

/// A reply: its error, and what was read with its place.
#[derive(Default)]
struct Reply {
    error: u32,
    data: Vec<(u64, Vec<u8>)>,
    extents_bytes: u64,
}

impl Client {
    fn is(&self, mode: u8) -> bool {
        self.mode & mode != 0
    }

    async fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut from, mut to) = self.stream.split();
        let sending = async {
            // The server may have had enough.
            let _ = to.write_all(bytes).await;
            let _ = to.shutdown().await;
        };
        let receiving = async {
            let (mut buffer, mut total) = (vec![0; 64 << 10], 0);
            while let Ok(len @ 1..) = from.read(&mut buffer).await {
                total += len;
                assert!(total <= MOST_ANSWER_BYTES, "{total} bytes answered to {} sent", bytes.len());
            }
        };
        tokio::join!(sending, receiving);
        Ok(())
    }

    async fn send_requests(&mut self, script: &[u8]) -> io::Result<()> {
        self.negotiate().await?;
        let (mut requests, mut input) = (Vec::new(), Input::new(script));
        while !input.is_empty() && requests.len() < MOST_REQUESTS {
            requests.push(request(&mut input, requests.len() as u64));
        }
        let is_last = |(request, _): &(Request, u8)| request.kind.get() == command::DISC;
        let answered = requests.iter().position(is_last).unwrap_or(requests.len());
        requests.truncate(answered);
        if self.is(AT_ONCE) {
            self.all_at_once(&requests).await?
        } else {
            self.one_by_one(&requests).await?
        }
        let disconnect =
            Request { magic: REQUEST_MAGIC.into(), kind: command::DISC.into(), ..Request::default() };
        self.stream.write_all(disconnect.as_bytes()).await?;
        assert_eq!(self.stream.read(&mut [0]).await.unwrap_or(0), 0, "a reply to a disconnect");
        Ok(())
    }

    async fn negotiate(&mut self) -> io::Result<()> {
        let name = [&1u32.to_be_bytes()[..], b"v"].concat();
        let query = [&name[..], &1u32.to_be_bytes(), &15u32.to_be_bytes(), b"base:allocation"].concat();
        let kinds: &[u8] = if self.is(CONSTRAINED) { &[0, 1, 0, 3] } else { &[0, 0] };
        let mut options = Vec::new();
        if self.is(STRUCTURED) {
            options.push((option::STRUCTURED_REPLY, Vec::new()));
            if self.is(ALLOCATION) {
                options.push((option::SET_META_CONTEXT, query));
            }
        }
        options.push((option::GO, [&name, kinds].concat()));
        self.stream.write_all(&3u32.to_be_bytes()).await?;
        self.bytes(18).await?;
        for (number, data) in options {
            let (option, data_bytes) = (number.into(), (data.len() as u32).into());
            let header = OptionHeader { magic: OPTION_MAGIC.into(), option, data_bytes };
            self.stream.write_all(&[header.as_bytes(), &data].concat()).await?;
            loop {
                let header = self.bytes(OptionReply::BYTES).await?;
                let header = OptionReply::read_from_bytes(&header).expect("it is as long as one");
                self.bytes(header.data_bytes.get() as usize).await?;
                assert!(header.kind.get() < 1 << 31, "option {number} is refused");
                if header.kind.get() == reply::ACK {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    async fn send(&mut self, (request, stamp): &(Request, u8)) -> io::Result<()> {
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.write_all(&vec![*stamp; request.payload_bytes() as usize]).await
    }

    /// Each cookie is answered once.
    async fn all_at_once(&mut self, requests: &[(Request, u8)]) -> io::Result<()> {
        let bytes: Vec<u8> = requests
            .iter()
            .flat_map(|(request, stamp)| {
                [request.as_bytes(), &vec![*stamp; request.payload_bytes() as usize]].concat()
            })
            .collect();
        let mut open: std::collections::BTreeSet<u64> = (0..requests.len() as u64).collect();
        let structured = self.is(STRUCTURED);
        let (mut from, mut to) = self.stream.split();
        let sending = async { to.write_all(&bytes).await };
        let receiving = async {
            while !open.is_empty() {
                let (cookie, is_last) = skip_reply(&mut from, structured, requests).await?;
                assert!(open.contains(&cookie), "cookie {cookie} is answered twice, or was never sent");
                if is_last {
                    open.remove(&cookie);
                }
            }
            Ok(())
        };
        tokio::try_join!(sending, receiving).map(drop)
    }

    /// Each reply is what the model says.
    async fn one_by_one(&mut self, requests: &[(Request, u8)]) -> io::Result<()> {
        for sent in requests {
            let before = self.volume.content();
            self.send(sent).await?;
            let reply = self.reply(sent).await?;
            let after = self.volume.content();
            check(self.mode, sent, &reply, &before, &after);
        }
        Ok(())
    }

    async fn reply(&mut self, (request, _): &(Request, u8)) -> io::Result<Reply> {
        let mut reply = Reply::default();
        let len = request.len_bytes.get() as usize;
        if !self.is(STRUCTURED) {
            let header = self.bytes(SimpleReply::BYTES).await?;
            let header = SimpleReply::read_from_bytes(&header).expect("it is as long as one");
            assert_eq!((header.magic.get(), header.cookie), (SIMPLE_REPLY_MAGIC, request.cookie));
            reply.error = header.error.get();
            if reply.error == 0 && request.kind.get() == command::READ {
                reply.data.push((request.offset.get(), self.bytes(len).await?));
            }
            return Ok(reply);
        }
        loop {
            let header = self.bytes(Chunk::BYTES).await?;
            let header = Chunk::read_from_bytes(&header).expect("it is as long as one");
            assert_eq!((header.magic.get(), header.cookie), (STRUCTURED_REPLY_MAGIC, request.cookie));
            let payload = self.bytes(header.payload_bytes.get() as usize).await?;
            reply.take(header.kind.get(), &payload);
            if header.flags.get() & REPLY_FLAG_DONE != 0 {
                return Ok(reply);
            }
        }
    }
}

impl Reply {
    fn take(&mut self, kind: u16, payload: &[u8]) {
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        match kind {
            chunk::NONE => assert!(payload.is_empty()),
            chunk::OFFSET_DATA => self.data.push((number(&payload[..8]), payload[8..].to_vec())),
            chunk::OFFSET_HOLE => {
                self.data.push((number(&payload[..8]), vec![0; number(&payload[8..12]) as usize]));
            }
            chunk::BLOCK_STATUS => {
                self.extents_bytes = payload[4..].chunks(8).map(|extent| number(&extent[..4])).sum();
            }
            chunk::ERROR | chunk::ERROR_OFFSET => {
                self.error = number(&payload[..4]) as u32;
                let message = number(&payload[4..6]) as usize;
                let place = if kind == chunk::ERROR { 0 } else { 8 };
                assert!(self.error > 0 && message > 0 && payload.len() == 6 + message + place);
            }
            kind => panic!("a chunk of type {kind}"),
        }
    }
}

/// One reply or chunk, unread: its cookie, and whether it is the last of its cookie.
async fn skip_reply(
    from: &mut (impl AsyncReadExt + Unpin),
    structured: bool,
    requests: &[(Request, u8)],
) -> io::Result<(u64, bool)> {
    let mut bytes = vec![0; if structured { Chunk::BYTES } else { SimpleReply::BYTES }];
    from.read_exact(&mut bytes).await?;
    let (cookie, len, is_last) = if structured {
        let header = Chunk::read_from_bytes(&bytes).expect("it is as long as one");
        assert_eq!(header.magic.get(), STRUCTURED_REPLY_MAGIC);
        let is_last = header.flags.get() & REPLY_FLAG_DONE != 0;
        (header.cookie.get(), header.payload_bytes.get(), is_last)
    } else {
        let header = SimpleReply::read_from_bytes(&bytes).expect("it is as long as one");
        assert_eq!(header.magic.get(), SIMPLE_REPLY_MAGIC);
        let (request, _) = &requests[header.cookie.get() as usize];
        let has_data = header.error.get() == 0 && request.kind.get() == command::READ;
        (header.cookie.get(), if has_data { request.len_bytes.get() } else { 0 }, true)
    };
    from.read_exact(&mut vec![0; len as usize]).await?;
    Ok((cookie, is_last))
}

/// The next request of an input. Offsets and lengths of an input are short, so that many lie within the volume.
fn request(input: &mut Input<'_>, cookie: u64) -> (Request, u8) {
    const FAR: u8 = 0x80;
    let (kind, flags) = (input.u8(), input.u8());
    let (offset, len, stamp) = (u64::from(input.u16()) * 8, u32::from(input.u16()) * 2, input.u8());
    let offset = if kind & FAR != 0 { offset << 48 | offset } else { offset };
    let request = Request {
        magic: REQUEST_MAGIC.into(),
        flags: u16::from(flags).into(),
        kind: u16::from(kind & !FAR).into(),
        cookie: cookie.into(),
        offset: offset.into(),
        len_bytes: len.into(),
    };
    (request, stamp)
}

/// What a request may come to.
fn check(mode: u8, (request, stamp): &(Request, u8), reply: &Reply, before: &[u8], after: &[u8]) {
    let (offset, len) = (request.offset.get(), u64::from(request.len_bytes.get()));
    let kind = request.kind.get();
    if reply.error != 0 {
        assert!(before == after, "{request:?} failed and changed the volume");
        return;
    }
    if kind == command::FLUSH {
        return assert!(before == after);
    }
    let end = offset.checked_add(len).filter(|end| *end <= before.len() as u64);
    let Some(end) = end else { panic!("{request:?} is beyond the volume and succeeds") };
    let block = if mode & LARGE_BLOCKS != 0 { 4096 } else { 512 };
    assert!(
        mode & CONSTRAINED == 0 || offset.is_multiple_of(block) && len.is_multiple_of(block),
        "{request:?}"
    );
    let range = offset as usize..end as usize;
    let is_change = [command::WRITE, command::WRITE_ZEROES, command::TRIM].contains(&kind);
    assert!(mode & READ_ONLY == 0 || !is_change, "{request:?} on a read-only export");
    let mut expected = before.to_vec();
    match kind {
        command::READ => {
            let mut at = offset;
            for (place, data) in &reply.data {
                assert_eq!(*place, at, "{request:?}: parts of the answer are not in order");
                at += data.len() as u64;
            }
            assert_eq!(at, end, "{request:?}: the answer is not whole");
            let read: Vec<u8> = reply.data.iter().flat_map(|(_, data)| data).copied().collect();
            assert!(read == before[range], "{request:?} reads something else than what is there");
        }
        command::WRITE => expected[range].fill(*stamp),
        command::WRITE_ZEROES => expected[range].fill(0),
        // Whole blocks are given back.
        command::TRIM => {
            let first = offset.next_multiple_of(block).min(end);
            expected[first as usize..(end / block * block).max(first) as usize].fill(0);
        }
        command::CACHE => {}
        command::BLOCK_STATUS => assert!((1..=len).contains(&reply.extents_bytes), "{request:?}"),
        _ => panic!("{request:?} is not known and succeeds"),
    }
    assert!(after == expected, "{request:?} leaves something else than it should");
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let one = |kind: u16, flags: u8, offset: u16, len: u16, stamp: u8| {
        [&[kind as u8, flags][..], &(offset / 8).to_le_bytes(), &(len / 2).to_le_bytes(), &[stamp]].concat()
    };
    let with = |mode: u8, requests: &[Vec<u8>]| [&[mode], &requests.concat()[..]].concat();
    let write = one(command::WRITE, 1, 512, 1024, 7);
    let read = one(command::READ, 0, 0, 4096, 0);
    let part = one(command::WRITE, 0, 504, 24, 9);
    let all = [
        write.clone(),
        read.clone(),
        part.clone(),
        read.clone(),
        one(command::TRIM, 0, 520, 2048, 0),
        one(command::WRITE_ZEROES, 2, 1000, 3000, 0),
        one(command::BLOCK_STATUS, 0, 0, 32768, 0),
        one(command::BLOCK_STATUS, 8, 8, 16, 0),
        one(command::CACHE, 0, 0, 8192, 0),
        one(command::FLUSH, 0, 0, 0, 0),
        one(command::READ, 4, 0, 8192, 0),
        one(9, 0, 0, 0, 0),
        one(command::READ, 0, 32760, 16, 0),
        one(command::DISC, 0, 0, 0, 0),
    ];
    let option = |number: u32, data: &[u8]| {
        [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let go = option(option::GO, &[0, 0, 0, 1, b'v', 0, 0]);
    let raw = |kind: u16, len: u32| {
        let (kind, len_bytes) = (kind.into(), len.into());
        let request = Request { magic: REQUEST_MAGIC.into(), kind, len_bytes, ..Request::default() };
        request.as_bytes().to_vec()
    };
    let huge = [&[RAW][..], &3u32.to_be_bytes(), &go, &raw(command::WRITE, u32::MAX), &[1; 64]].concat();
    let torn = [&[RAW][..], &3u32.to_be_bytes(), &go, &raw(command::READ, 4096), &[0x25, 0x60]].concat();
    vec![
        ("simple", with(0, &all)),
        ("structured", with(STRUCTURED | ALLOCATION, &all)),
        ("constrained", with(STRUCTURED | CONSTRAINED, &all)),
        ("read_only", with(READ_ONLY, &all)),
        ("large_blocks", with(LARGE_BLOCKS | STRUCTURED | ALLOCATION, &all)),
        ("at_once", with(AT_ONCE, &all)),
        (
            "at_once_structured",
            with(
                AT_ONCE | STRUCTURED | ALLOCATION,
                &[write, part, read].concat().repeat(3).chunks(7).map(<[u8]>::to_vec).collect::<Vec<_>>(),
            ),
        ),
        ("raw_huge", huge),
        ("raw_torn", torn),
        ("raw_greeting", vec![RAW, 0, 0, 0, 7]),
    ]
}
