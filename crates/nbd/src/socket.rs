//! The byte stream under a connection: TCP or a Unix socket, encrypted or not.

use rustix::net::sockopt;
use std::{
    io::{self, IoSlice, IoSliceMut},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;

/// When a silent peer is asked whether it is there, how often, and how long sent bytes may stay unacknowledged.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TRIES: u32 = 3;
const UNACKNOWLEDGED_MS: u32 = 60_000;

/// A stream of bytes that a connection can be served over.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for S {}

/// A connected socket on its way to the thread that serves it.
pub(crate) enum Connected {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
    Other(Box<dyn ByteStream>),
}

/// A socket.
pub(crate) enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
    Other(Box<dyn ByteStream>),
}

/// A socket, perhaps with TLS over it.
pub(crate) enum Socket {
    Plain(Plain),
    Tls(Box<TlsStream<Plain>>),
}

impl Connected {
    /// Takes it over on the thread that serves it.
    pub(crate) fn into_plain(self) -> io::Result<Plain> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, KEEPALIVE_AFTER)?;
                sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_EVERY)?;
                sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_TRIES)?;
                sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS)?;
                Ok(Plain::Tcp(TcpStream::from_std(stream)?))
            }
            Self::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Ok(Plain::Unix(UnixStream::from_std(stream)?))
            }
            Self::Other(stream) => Ok(Plain::Other(stream)),
        }
    }
}

macro_rules! each {
    ($plain:expr, $stream:ident => $do:expr) => {
        match $plain {
            Plain::Tcp($stream) => $do,
            Plain::Unix($stream) => $do,
            Plain::Other($stream) => $do,
        }
    };
}

/// Reads from a socket into both buffers with one system call. A read that brought less than there was room for took
/// all there was: the next one waits for more, without asking the kernel first.
macro_rules! read_socket {
    ($stream:expr, $cx:expr, $first:expr, $second:expr) => {{
        let room = $first.len() + $second.len();
        let mut buffers = [IoSliceMut::new($first), IoSliceMut::new($second)];
        loop {
            ready!($stream.poll_read_ready($cx))?;
            match $stream.try_read_vectored(&mut buffers) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => {
                    if outcome.as_ref().is_ok_and(|read| (1..room).contains(read)) {
                        let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                        let _ = $stream.try_io(Interest::READABLE, empty);
                    }
                    break Poll::Ready(outcome);
                }
            }
        }
    }};
}

impl Plain {
    /// Reads into both buffers, one after the other, with one system call.
    fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => read_socket!(stream, cx, first, second),
            Self::Unix(stream) => read_socket!(stream, cx, first, second),
            Self::Other(stream) => {
                let mut buffer = ReadBuf::new(if first.is_empty() { second } else { first });
                ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Plain {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}

impl Socket {
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Reads what there is into `first`, and into `second` when `first` is full; ready with 0 at the end of the
    /// stream. Encrypted bytes fill one of the two at a time.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(plain) => plain.poll_read_vectored(cx, first, second),
            Self::Tls(stream) => {
                let mut buffer = ReadBuf::new(if first.is_empty() { second } else { first });
                ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }

    /// Writes the beginning of `slices`; ready with how many bytes were taken.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(plain) => Pin::new(plain).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
        }
    }

    /// Ready when nothing that was taken waits to be sent.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }
}
