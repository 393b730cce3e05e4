//! The server: accepts connections, hands them out, serves each where it was taken to.

use crate::{
    NbdError,
    connection::Connection,
    handshake::TlsMode,
    metrics::{Metrics, MetricsSnapshot},
    receive::Receive,
    socket::{self, ByteStream},
    tls::Tls,
};
use quoin_target::{ClientAddress, Clock, Exports, RuntimeClock, SessionMemory};
use quoin_volume::BlockDevice;
use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
};

/// A client that was refused, for those who look after the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where the client came from.
    pub peer: String,
    /// The export it asked for, if it came to that.
    pub export: Option<String>,
    /// The first name of its TLS certificate.
    pub tls_name: Option<String>,
    /// Why it was refused. One of a small set of texts, which hold nothing that the client chose.
    pub why: &'static str,
    /// What else is known of the reason.
    pub detail: Option<String>,
}

/// How the server behaves.
pub struct Options {
    /// Connections served at once; further ones are closed.
    pub max_connections: usize,
    /// How many of them may be negotiating.
    pub max_negotiations: usize,
    /// What the data of all sessions' requests, and what was received for them, may take of memory; other front ends
    /// may have their part in it. Each session may have one request whatever the others hold.
    pub memory: Arc<SessionMemory>,
    /// Time to get through negotiation.
    pub handshake_timeout: Duration,
    /// Time without progress after which a client that stopped in the middle of a request, or does not take its
    /// replies, is dropped.
    pub stall_timeout: Duration,
    /// What timeouts and latencies go by. Front ends of the same volumes must have the same one: the limits of a volume
    /// are counted by it.
    pub clock: Arc<dyn Clock>,
    /// Milliseconds since the Unix epoch, for the list of clients.
    pub wall_clock_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Told of each client that was refused: an export it may not see, a certificate that is missing or wrong, TLS that
    /// it does not use, a negotiation that broke the protocol or took too long, too many connections.
    pub refused: Box<dyn Fn(Refused) + Send + Sync>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_negotiations: 128,
            memory: SessionMemory::new(512 << 20),
            handshake_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            clock: Arc::new(RuntimeClock::default()),
            wall_clock_ms: Box::new(|| 0),
            refused: Box::new(drop),
        }
    }
}

/// An NBD server for the exports of an array.
pub struct NbdServer<D: BlockDevice> {
    pub(crate) exports: Arc<Exports<D>>,
    pub(crate) tls: Option<(Tls, TlsMode)>,
    pub(crate) options: Options,
    pub(crate) metrics: Metrics,
    pub(crate) shutdown: watch::Sender<bool>,
    open: AtomicUsize,
    negotiating: AtomicUsize,
    closed: watch::Sender<()>,
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// A connection on its way to the thread that serves it. Dropped instead, it is closed.
pub struct Accepted<D: BlockDevice> {
    server: Arc<NbdServer<D>>,
    stream: Option<socket::Connected>,
    address: ClientAddress,
    peer: String,
    negotiating: bool,
}

impl<D: BlockDevice> fmt::Debug for Accepted<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accepted({})", self.peer)
    }
}

type Stream = (socket::Connected, ClientAddress, String);

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let address = ClientAddress::Ip(peer.ip());
                Ok((socket::Connected::Tcp(stream.into_std()?), address, peer.to_string()))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = match stream.peer_cred() {
                    Ok(peer) => format!("unix:uid={},pid={}", peer.uid(), peer.pid().unwrap_or(0)),
                    Err(_) => "unix".to_owned(),
                };
                Ok((socket::Connected::Unix(stream.into_std()?), ClientAddress::Local, peer))
            }
        }
    }
}

impl<D: BlockDevice> NbdServer<D> {
    /// A server for `exports`; with `tls`, connections over TCP may or must be encrypted, as its mode says.
    pub fn new(exports: Arc<Exports<D>>, tls: Option<(Tls, TlsMode)>, options: Options) -> Arc<Self> {
        Arc::new(Self {
            exports,
            tls,
            options,
            metrics: Metrics::default(),
            shutdown: watch::Sender::new(false),
            open: AtomicUsize::new(0),
            negotiating: AtomicUsize::new(0),
            closed: watch::Sender::new(()),
        })
    }

    /// Accepts connections until [`NbdServer::shutdown`] and passes each to `hand_over`, which takes it to a data
    /// thread and has [`Accepted::serve`] run there.
    pub async fn accept(self: &Arc<Self>, listener: Listener, mut hand_over: impl FnMut(Accepted<D>)) {
        let mut shutdown = self.shutdown.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok(stream) => {
                    if let Some(accepted) = self.admit(stream) {
                        hand_over(accepted);
                    }
                }
                Err(error) => {
                    // Out of descriptors, or the peer has gone already: neither is mended by trying at once.
                    tracing::warn!(%error, "connection not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, (stream, address, peer): Stream) -> Option<Accepted<D>> {
        self.metrics.connections.increment();
        // Counted first: `Accepted`, once dropped, takes both back, refused or not.
        let open = self.open.fetch_add(1, Ordering::AcqRel);
        let negotiating = self.negotiating.fetch_add(1, Ordering::AcqRel);
        let accepted =
            Accepted { server: self.clone(), stream: Some(stream), address, peer, negotiating: true };
        if open >= self.options.max_connections || negotiating >= self.options.max_negotiations {
            self.metrics.connections_refused.increment();
            let why = if open >= self.options.max_connections {
                "too many connections are open"
            } else {
                "too many clients negotiate"
            };
            // A flood of connections must not be one of lines, too.
            if self.metrics.snapshot().connections_refused.is_power_of_two() {
                tracing::warn!(peer = accepted.peer, open, negotiating, "connection refused: {why}");
            }
            let (peer, export, tls_name, detail) = (accepted.peer.clone(), None, None, None);
            (self.options.refused)(Refused { peer, export, tls_name, why, detail });
            return None;
        }
        Some(accepted)
    }

    /// Serves a connection to its end over a stream of bytes that is no socket of this process, as one that
    /// [`NbdServer::accept`] accepted from `address`. To be called on the data thread that it is to live on.
    pub async fn serve_over(self: &Arc<Self>, stream: impl ByteStream, address: ClientAddress, peer: &str) {
        if let Some(accepted) =
            self.admit((socket::Connected::Other(Box::new(stream)), address, peer.to_owned()))
        {
            accepted.serve().await;
        }
    }

    /// Stops accepting and refuses further requests; connections end when what they started has, or after a few
    /// seconds. Resolves when the last one is closed and what it started has ended.
    pub async fn shutdown(&self) {
        self.shutdown.send_replace(true);
        let mut closed = self.closed.subscribe();
        while self.open.load(Ordering::Acquire) > 0 {
            // Fails only without a sender, which `self` is.
            let _ = closed.changed().await;
        }
    }

    /// Counters.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.metrics.snapshot()
    }
}

impl<D: BlockDevice> Accepted<D> {
    /// Where the client comes from.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Serves the connection to its end. To be called on the data thread that it is to live on.
    pub async fn serve(mut self) {
        let Some(stream) = self.stream.take() else { return };
        let peer = self.peer.clone();
        let outcome = self.run(stream).await;
        if outcome.as_ref().is_err_and(NbdError::is_breach) {
            self.server.metrics.protocol_errors.increment();
        }
        match outcome {
            Ok(()) => tracing::info!(%peer, "client disconnected"),
            Err(NbdError::Closed) => tracing::debug!(%peer, "client closed its connection"),
            Err(error) => tracing::info!(%peer, %error, "connection ended"),
        }
    }

    async fn run(&mut self, stream: socket::Connected) -> Result<(), NbdError> {
        let plain = stream.into_plain()?;
        let server = self.server.clone();
        let peer = self.peer.clone();
        let connection =
            Connection { server: &server, receive: Receive::new(), address: self.address, peer: &peer };
        connection.run(plain, || self.negotiated()).await
    }

    fn negotiated(&mut self) {
        if std::mem::take(&mut self.negotiating) {
            let negotiating = self.server.negotiating.fetch_sub(1, Ordering::AcqRel);
            assert!(negotiating > 0, "NBD server: a negotiation ended that was not counted");
        }
    }
}

impl<D: BlockDevice> Drop for Accepted<D> {
    fn drop(&mut self) {
        self.negotiated();
        let open = self.server.open.fetch_sub(1, Ordering::AcqRel);
        assert!(open > 0, "NBD server: a connection closed that was not counted as open");
        self.server.closed.send_replace(());
    }
}
