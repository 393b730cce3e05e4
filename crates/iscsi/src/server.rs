//! The server: accepts connections, hands them out, serves each where it was taken to.

use crate::{
    connection::Connection,
    login_throttle::{LoginFailure, LoginThrottle, PendingLogin},
    metrics::{Metrics, MetricsSnapshot},
    receive::Receive,
    strangers::Strangers,
    tsih::TsihTable,
};
use parking_lot::Mutex;
use quoin_target::{Clock, RuntimeClock, SessionMemory, Target};
use quoin_volume::BlockDevice;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// An address at which the target is reached, and the target portal group it makes up: each is one of its own, that is, a
/// target port of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portal {
    /// The address; unspecified for all of this machine.
    pub address: SocketAddr,
    /// The tag of its target portal group.
    pub group: u16,
}

/// The portal group of a target with one portal.
const FIRST_GROUP: u16 = 1;

/// How the server behaves.
pub struct Options {
    /// Connections served at once; further ones are closed. Sessions of initiators that no host has may be a quarter of them.
    pub max_connections: usize,
    /// Connections that have not logged in yet, altogether; further ones are closed.
    pub max_pending_logins: usize,
    /// The same from one address.
    pub max_pending_logins_of_address: usize,
    /// What the data of all sessions' commands, and what was received for them, may take of memory; other front ends
    /// may have their part in it. Each session may have one command whatever the others hold.
    pub memory: Arc<SessionMemory>,
    /// Time to get through login.
    pub login_timeout: Duration,
    /// Silence after which an initiator is asked whether it is there; after three times this it is not. After three
    /// to four times this it must have taken what it was answered, and sent what it was asked for.
    pub ping_after: Duration,
    /// Time that initiators have to log out when the server shuts down; told to them in whole seconds.
    pub logout_time: Duration,
    /// What timeouts and latencies go by. Front ends of the same volumes must have the same one: the limits of a volume
    /// are counted by it.
    pub clock: Arc<dyn Clock>,
    /// Milliseconds since the Unix epoch, for the list of sessions.
    pub wall_clock_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// 64 bits that nobody can foresee, for challenges.
    pub random_u64: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Told of each login that was refused, and of each that no host has the initiator of. Connections that end before
    /// their login without having broken the protocol are no login.
    pub login_failed: Box<dyn Fn(LoginFailure) + Send + Sync>,
}

impl Options {
    /// The usual limits, and where random numbers come from.
    pub fn new(random_u64: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            random_u64: Box::new(random_u64),
            login_failed: Box::new(drop),
            max_pending_logins: 512,
            max_pending_logins_of_address: 128,
            max_connections: 1024,
            memory: SessionMemory::new(512 << 20),
            login_timeout: Duration::from_secs(30),
            ping_after: Duration::from_secs(15),
            logout_time: Duration::from_secs(3),
            clock: Arc::new(RuntimeClock::default()),
            wall_clock_ms: Box::new(|| 0),
        }
    }
}

/// An iSCSI server for one target.
pub struct IscsiServer<D: BlockDevice> {
    pub(crate) target: Arc<Target<D>>,
    pub(crate) options: Options,
    pub(crate) metrics: Metrics,
    login_throttle: Arc<LoginThrottle>,
    pub(crate) strangers: Strangers,
    pub(crate) tsihs: TsihTable,
    closed: watch::Sender<Closed>,
    portals: Mutex<Vec<Portal>>,
    open: AtomicUsize,
    ended: watch::Sender<()>,
}

/// What takes no connections any more; those that are there are to end.
#[derive(Default)]
struct Closed {
    server: bool,
    /// How often each portal group was closed: it may be open again before all of its connections have ended.
    groups: BTreeMap<u16, u64>,
}

impl Closed {
    fn times(&self, group: u16) -> u64 {
        self.groups.get(&group).copied().unwrap_or(0)
    }
}

/// A portal group, until it is closed.
#[derive(Clone, Copy)]
pub(crate) struct OpenGroup {
    pub(crate) group: u16,
    /// How often it was closed before.
    closed: u64,
}

/// A connection on its way to the thread that serves it. Dropped instead, it is closed.
pub struct Accepted<D: BlockDevice> {
    server: Arc<IscsiServer<D>>,
    stream: Option<std::net::TcpStream>,
    peer: SocketAddr,
    group: OpenGroup,
    pending: Option<PendingLogin>,
}

impl<D: BlockDevice> fmt::Debug for Accepted<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accepted({})", self.peer)
    }
}

impl<D: BlockDevice> IscsiServer<D> {
    /// A server for `target`.
    pub fn new(target: Arc<Target<D>>, options: Options) -> Arc<Self> {
        // Requests run in the connections' `LocalSet`, and so does what goes on without them.
        target.carry_on_with(|work| drop(tokio::task::spawn_local(work)));
        Arc::new(Self {
            target,
            tsihs: TsihTable::default(),
            strangers: Strangers::among(options.max_connections),
            login_throttle: LoginThrottle::new(
                options.max_pending_logins,
                options.max_pending_logins_of_address,
                options.clock.clone(),
            ),
            options,
            metrics: Metrics::default(),
            closed: watch::Sender::default(),
            portals: Mutex::default(),
            open: AtomicUsize::new(0),
            ended: watch::Sender::new(()),
        })
    }

    /// Makes these the portals that discovery tells of. Until the first call, it tells of the address that the initiator connected
    /// to.
    ///
    /// The server closes a portal group that was there and is not any more: [`IscsiServer::accept`] ends, and initiators that came
    /// through it are asked to log out as when the server shuts down. All others go on.
    pub fn set_portals(&self, portals: Vec<Portal>) {
        let groups: BTreeSet<u16> = portals.iter().map(|portal| portal.group).collect();
        let mut current = self.portals.lock();
        self.closed.send_modify(|closed| {
            for portal in current.iter().filter(|portal| !groups.contains(&portal.group)) {
                *closed.groups.entry(portal.group).or_default() += 1;
            }
        });
        *current = portals;
    }

    fn open_group(&self, group: u16) -> OpenGroup {
        OpenGroup { group, closed: self.closed.borrow().times(group) }
    }

    /// Resolves once the server, or this portal group of it, is closed.
    pub(crate) fn closed(&self, open: OpenGroup) -> impl Future<Output = ()> + use<D> {
        let mut closed = self.closed.subscribe();
        let is_closed = move |closed: &Closed| closed.server || closed.times(open.group) > open.closed;
        // Fails only without a sender, which `self` has. The caller holds `self` while it waits.
        async move { drop(closed.wait_for(is_closed).await) }
    }

    /// The portals that discovery tells of.
    pub fn portals(&self) -> Vec<Portal> {
        self.portals.lock().clone()
    }

    /// Accepts connections of a portal group until it is closed and passes each to `hand_over`, which takes it to a data thread
    /// and has [`Accepted::serve`] run there.
    pub async fn accept(
        self: &Arc<Self>,
        listener: TcpListener,
        group: u16,
        mut hand_over: impl FnMut(Accepted<D>),
    ) {
        let group = self.open_group(group);
        let mut closed = pin!(self.closed(group));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut closed => return,
            };
            match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
                Ok((stream, peer)) => {
                    if let Some(accepted) = self.admit(Some(stream), peer, group) {
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

    /// Serves a connection to its end over a stream of bytes that is no socket of this process, as one that
    /// [`IscsiServer::accept`] accepted from `peer` at `local`. To be called on the data thread that it is to live on.
    pub async fn serve_over(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        peer: SocketAddr,
        local: SocketAddr,
    ) {
        if let Some(accepted) = self.admit(None, peer, self.open_group(FIRST_GROUP)) {
            accepted.run(stream, local).await;
        }
    }

    fn admit(
        self: &Arc<Self>,
        stream: Option<std::net::TcpStream>,
        peer: SocketAddr,
        group: OpenGroup,
    ) -> Option<Accepted<D>> {
        self.metrics.connections.fetch_add(1, Ordering::Relaxed);
        // Counted first: `Accepted`, once dropped, takes it back, refused or not.
        let open = self.open.fetch_add(1, Ordering::AcqRel);
        let pending = self.login_throttle.admit(peer.ip());
        let refused = match &pending {
            None => Some("too many connections have not logged in yet"),
            Some(_) if open >= self.options.max_connections => Some("too many connections are open"),
            Some(_) => None,
        };
        let accepted = Accepted { server: self.clone(), stream, peer, group, pending };
        if let Some(why) = refused {
            let before = self.metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
            // A flood of connections must not be one of lines, too.
            if (before + 1).is_power_of_two() {
                tracing::warn!(%peer, open, refused = before + 1, "connection refused: {why}");
            }
            let (initiator, other_target, status, failures) = (None, None, None, 0);
            let failure = LoginFailure { initiator, other_target, peer, why, status, failures };
            (self.options.login_failed)(failure);
            return None;
        }
        Some(accepted)
    }

    /// Stops accepting and asks every initiator to log out; those that do not within [`Options::logout_time`] are
    /// told that they are cut off, and are.
    /// Resolves when the last connection is closed and what it started has ended.
    pub async fn shutdown(&self) {
        self.closed.send_modify(|closed| closed.server = true);
        let mut ended = self.ended.subscribe();
        while self.open.load(Ordering::Acquire) > 0 {
            // Fails only without a sender, which `self` is.
            let _ = ended.changed().await;
        }
    }

    /// The budget that its sessions keep to.
    pub fn memory(&self) -> &SessionMemory {
        &self.options.memory
    }

    /// Counters.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.metrics.snapshot()
    }
}

impl<D: BlockDevice> Accepted<D> {
    /// The initiator's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Serves the connection to its end. To be called on the data thread that it is to live on.
    pub async fn serve(mut self) {
        let peer = self.peer;
        match self.stream.take().map(into_runtime) {
            Some(Ok((stream, local))) => self.run(stream, local).await,
            Some(Err(error)) => tracing::info!(%peer, %error, "connection ended"),
            None => {}
        }
    }

    async fn run(mut self, stream: impl AsyncRead + AsyncWrite + Unpin, local: SocketAddr) {
        let (server, peer, group, pending) = (&*self.server, self.peer, self.group, self.pending.take());
        let (receive, tsih) = (Receive::new(), None);
        let connection = Connection {
            server,
            stream,
            peer,
            local,
            group,
            receive,
            pending,
            stranger: None,
            tsih,
            quiet_ticks: Some(0),
        };
        match connection.run().await {
            Ok(()) => tracing::info!(%peer, "initiator logged out"),
            Err(error) => tracing::info!(%peer, %error, "connection ended"),
        }
    }
}

/// Takes a socket over on the thread that serves it; also its own address.
fn into_runtime(stream: std::net::TcpStream) -> io::Result<(TcpStream, SocketAddr)> {
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    Ok((stream, local))
}

impl<D: BlockDevice> Drop for Accepted<D> {
    fn drop(&mut self) {
        let open = self.server.open.fetch_sub(1, Ordering::AcqRel);
        assert!(open > 0, "iSCSI server: a connection closed that was not counted as open");
        self.server.ended.send_replace(());
    }
}
