//! The limit of the wire: requests and replies of the sizes iSCSI would send, over TCP on loopback, nothing done
//! between. Both ends handle all that one wake-up brings and write once.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::load::Cpu;
use crate::proc::thread_cpu_seconds;
use crate::stats::{Percentiles, histogram};
use quoin_initiator::HEADER_BYTES;

/// One kind of exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) request_bytes: usize,
    pub(crate) reply_bytes: usize,
    pub(crate) depth: usize,
}

impl Exchange {
    /// As large as a READ or a WRITE of `io_bytes`.
    pub(crate) fn of(write: bool, io_bytes: u64, depth: usize) -> Exchange {
        let (small, large) = (HEADER_BYTES, HEADER_BYTES + io_bytes as usize);
        let (request_bytes, reply_bytes) = if write { (large, small) } else { (small, large) };
        Exchange { request_bytes, reply_bytes, depth }
    }
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Echo {
    pub(crate) iops: f64,
    pub(crate) latency_us: Percentiles,
    pub(crate) server: Cpu,
    pub(crate) client: Cpu,
}

/// Measures one kind of exchange for a while.
pub(crate) fn run(exchange: Exchange, seconds: f64) -> Result<Echo> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(move || serve(&listener, exchange));
        let client = scope.spawn(move || ask(TcpStream::connect(address)?, exchange, seconds));
        let (ios, histogram, client_seconds) = client.join().expect("the echo's client panicked")?;
        let server_seconds = server.join().expect("the echo's server panicked")?;
        Ok(Echo {
            iops: ios as f64 / seconds,
            latency_us: Percentiles::of(&histogram),
            server: Cpu::new(server_seconds, ios, seconds),
            client: Cpu::new(client_seconds, ios, seconds),
        })
    })
}

fn serve(listener: &TcpListener, exchange: Exchange) -> Result<f64> {
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut received = vec![0; exchange.request_bytes * exchange.depth];
    let reply = vec![0xa5; exchange.reply_bytes * exchange.depth];
    let mut have = 0;
    // The client leaves with exchanges in flight, so the end may show as an error on either call.
    while let Ok(got @ 1..) = socket.read(&mut received) {
        have += got;
        let whole = have / exchange.request_bytes;
        have %= exchange.request_bytes;
        if socket.write_all(&reply[..whole * exchange.reply_bytes]).is_err() {
            break;
        }
    }
    Ok(thread_cpu_seconds())
}

fn ask(
    mut socket: TcpStream,
    exchange: Exchange,
    seconds: f64,
) -> Result<(u64, hdrhistogram::Histogram<u64>, f64)> {
    socket.set_nodelay(true)?;
    let mut received = vec![0; exchange.reply_bytes * exchange.depth];
    let request = vec![0x5a; exchange.request_bytes * exchange.depth];
    let mut started = std::collections::VecDeque::from(vec![Instant::now(); exchange.depth]);
    let mut histogram = histogram();
    let (mut have, mut ios) = (0, 0);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    socket.write_all(&request)?;
    loop {
        let got = socket.read(&mut received)?;
        ensure!(got > 0, "the echo's server hung up");
        have += got;
        let now = Instant::now();
        let whole = have / exchange.reply_bytes;
        have %= exchange.reply_bytes;
        for _ in 0..whole {
            let sent = started.pop_front().expect("there are as many as in flight");
            histogram.saturating_record((now - sent).as_nanos() as u64);
            started.push_back(now);
        }
        ios += whole as u64;
        if now >= end {
            return Ok((ios, histogram, thread_cpu_seconds()));
        }
        socket.write_all(&request[..whole * exchange.request_bytes])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_go_round() {
        for (write, bytes) in [(false, 8192), (true, 8192), (false, 1 << 20)] {
            let echo = run(Exchange::of(write, bytes, 4), 0.1).unwrap();
            assert!(echo.iops > 0.0 && echo.latency_us.max > 0.0);
        }
    }
}
