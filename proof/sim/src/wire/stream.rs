//! Simulated streams of bytes, as the front ends take one and as hosts use theirs.

use super::shared::{Shared, Trouble};
use quoin_world::World;
use quoin_world_sim::SimStream;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) struct Wire(pub SimStream);

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(self.0.poll_read(cx, buffer.initialize_unfilled()))?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        self.0.poll_write(cx, first.map_or(&[], |slice| slice))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close();
        Poll::Ready(Ok(()))
    }
}

/// Sends `output` and receives until something has come, all is sent, or a while is over; true unless that.
pub(super) async fn exchange(
    shared: &Shared,
    rng: &mut ChaCha8Rng,
    stream: &SimStream,
    input: &mut Vec<u8>,
    output: &mut Vec<u8>,
) -> Result<bool, Trouble> {
    let mut over = shared.world.sleep(Duration::from_millis(rng.random_range(5..60)));
    let had_output = !output.is_empty();
    poll_fn(|cx| {
        while !output.is_empty() {
            match stream.poll_write(cx, output) {
                Poll::Ready(Ok(sent)) => drop(output.drain(..sent)),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Trouble::Lost)),
                Poll::Pending => break,
            }
        }
        let mut bytes = [0; 32 << 10];
        match stream.poll_read(cx, &mut bytes) {
            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Trouble::Lost)),
            Poll::Ready(Ok(len)) => {
                input.extend_from_slice(&bytes[..len]);
                return Poll::Ready(Ok(true));
            }
            Poll::Pending => {}
        }
        if had_output && output.is_empty() {
            Poll::Ready(Ok(true))
        } else {
            over.as_mut().poll(cx).map(|()| Ok(false))
        }
    })
    .await
}
