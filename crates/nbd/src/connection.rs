//! One connection, from its first byte to its last, on one data thread.

use crate::{
    NbdError, NbdServer, Refused,
    command::{Finished, Unit, Work, perform},
    handshake::{Agreed, Directory, Found, Negotiation, Offer, Progress, Step, TlsMode},
    receive::Receive,
    session::{Session, Want},
    socket::{Plain, Socket},
    tls::names,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use quoin_target::{Client, ClientAddress, Connected, Export, ExportClient, Exports, Shown, over, within};
use quoin_volume::BlockDevice;
use quoin_world::Task;
use std::{
    cell::RefCell,
    collections::BTreeSet,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::AsyncWriteExt;
use zerocopy::IntoBytes;

/// How long a client is told that the array shuts down before its connection is closed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// The same for one that has commands under way, whose end is waited for.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);
/// How long the last words of an encrypted connection may take to be sent.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// Looks at a connection's progress within the time after which it counts as stalled.
const LOOKS: u32 = 4;

/// The exports as one client sees them.
struct View<'a, D: BlockDevice> {
    exports: &'a Exports<D>,
    client: &'a Client,
    server: &'a NbdServer<D>,
    peer: &'a str,
    /// What this client was refused already: it may ask for the same in several ways.
    told: &'a RefCell<BTreeSet<String>>,
}

/// Exports that a client was refused are remembered up to this many; those beyond are not told of.
const TOLD_MAX: usize = 16;

impl<D: BlockDevice> View<'_, D> {
    fn refused(&self, export: Option<&str>, why: &'static str) {
        // Told once for each export, and of a bounded number of them.
        let mut told = self.told.borrow_mut();
        if told.len() >= TOLD_MAX || !told.insert(export.unwrap_or_default().to_owned()) {
            return;
        }
        tracing::debug!(export, client = ?self.client, why, "client refused");
        (self.server.options.refused)(Refused {
            peer: self.peer.to_owned(),
            export: export.map(str::to_owned),
            tls_name: self.client.tls_names.first().cloned(),
            why,
            detail: None,
        });
    }
}

impl<D: BlockDevice> Directory for View<'_, D> {
    type Export = Arc<Export<D>>;

    fn names(&self) -> Vec<String> {
        let exports = self.exports.list();
        let shown = exports.iter().filter(|export| export.rules().shown_to(self.client) == Shown::Yes);
        shown.map(|export| export.name().to_owned()).collect()
    }

    fn find(&self, name: &str) -> Found<Arc<Export<D>>> {
        // To a client it is the same whether there is no such export or it may not see it; the event log tells.
        let Some(export) = self.exports.get(name) else {
            self.refused(Some(name), "there is no such export");
            return Found::Nothing;
        };
        match export.rules().shown_to(self.client) {
            Shown::No => {
                self.refused(Some(name), "the export is not shown to this client");
                Found::Nothing
            }
            Shown::WithCertificate => {
                self.refused(Some(name), "the export requires a client certificate of one of its names");
                Found::NeedsCertificate
            }
            Shown::Yes => {
                let device = export.device();
                let offer = Offer {
                    size_bytes: device.size_bytes(),
                    block_bytes: device.block_bytes(),
                    read_only: export.is_read_only(),
                    description: format!("Quoin volume {}", device.name()),
                };
                Found::Export(offer, export)
            }
        }
    }

    fn needs_tls(&self) {
        self.refused(None, "the client does not use TLS, which is required");
    }
}

/// A request's wait for the limits of its volume.
type Turn = Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct Connection<'a, D: BlockDevice> {
    pub(crate) server: &'a NbdServer<D>,
    pub(crate) receive: Receive,
    pub(crate) address: ClientAddress,
    pub(crate) peer: &'a str,
}

impl<D: BlockDevice> Connection<'_, D> {
    /// Serves the connection until it ends, and what it started has ended.
    pub(crate) async fn run(mut self, plain: Plain, negotiated: impl FnOnce()) -> Result<(), NbdError> {
        let (limit, clock) = (self.server.options.handshake_timeout, &*self.server.options.clock);
        // Negotiation is bounded in time, and no longer counts among those under way once it is over.
        let negotiation = within(clock, limit, self.negotiate(plain)).await;
        negotiated();
        let agreed = match negotiation.unwrap_or(Err(NbdError::HandshakeTimeout(limit))) {
            Ok(agreed) => agreed,
            Err(error) => {
                self.server.metrics.negotiations_failed.increment();
                if let Some(why) = error.ends_negotiation() {
                    let (peer, detail) = (self.peer.to_owned(), Some(error.to_string()));
                    let (export, tls_name) = (None, None);
                    (self.server.options.refused)(Refused { peer, export, tls_name, why, detail });
                }
                return Err(error);
            }
        };
        // Transmission: the client is listed until it ends, and has a share of what all sessions may hold.
        let Some((mut socket, agreed, client)) = agreed else { return Ok(()) };
        self.server.metrics.negotiations.increment();
        let export = agreed.export.clone();
        let connected = self.connected(&export, &socket, &client);
        let device = export.device().clone();
        let unit = Unit { contents: export.contents(), device };
        // A client may have sent its first requests along with the end of negotiation: they count as come now.
        let share = self.server.options.memory.share();
        let mut session = Session::new(unit, export.clone(), &agreed, share, clock.now());
        let mut running = FuturesUnordered::new();
        let perform = |work| perform(work, clock);
        let outcome = self.serve(&mut socket, &export, &mut session, &mut running, perform).await;
        // NOTE: at once: other sessions may wait for the timer of this line, which this session no longer polls.
        session.give_up_limited();
        if outcome.is_ok() {
            within(clock, CLOSE_LIMIT, socket.close()).await;
        }
        // The socket goes first; what was started runs to its end.
        drop(socket);
        running.extend(session.started.drain(..).map(perform));
        while let Some(finished) = running.next().await {
            session.complete(finished);
        }
        self.server.metrics.add(&mut session.counted);
        drop(connected);
        outcome
    }

    fn connected(&self, export: &Arc<Export<D>>, socket: &Socket, client: &Client) -> Connected<D> {
        let (name, peer, encrypted) = (export.name(), self.peer, socket.is_encrypted());
        let tls_name = client.tls_names.first().cloned();
        tracing::info!(export = name, %peer, encrypted, tls_name, "client connected");
        let since_ms = (self.server.options.wall_clock_ms)();
        export.connect(ExportClient { address: peer.to_owned(), tls_name, encrypted, since_ms })
    }

    /// Negotiates; `None` if the client did not want more than that.
    #[allow(clippy::type_complexity, reason = "a tuple of three things that belong together nowhere else")]
    async fn negotiate(
        &mut self,
        plain: Plain,
    ) -> Result<Option<(Socket, Agreed<Arc<Export<D>>>, Client)>, NbdError> {
        let mut client = Client { address: self.address, tls_names: Vec::new() };
        let tls = match (&self.server.tls, self.address) {
            (None, _) => TlsMode::Off,
            // What reaches a Unix socket does not leave this machine.
            (Some((_, TlsMode::Required)), ClientAddress::Local) => TlsMode::Optional,
            (Some((_, mode)), _) => *mode,
        };
        // The server speaks first (NBD protocol, newstyle negotiation).
        let mut socket = Socket::Plain(plain);
        let mut negotiation = Negotiation::new(tls);
        let told = RefCell::default();
        send(&mut socket, Negotiation::greeting().as_bytes()).await?;
        loop {
            let mut answer = Vec::new();
            let (exports, peer) = (&self.server.exports, self.peer);
            let view = View { exports, client: &client, server: self.server, peer, told: &told };
            // One message at a time: looked at, answered, followed.
            let progress = negotiation.receive(self.receive.bytes(), &view, &mut answer)?;
            let Progress::Took(len, step) = progress else {
                match self.receive.fill(&mut socket).await {
                    // Looking at what there is and leaving is what scanners and health checks do.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return Err(NbdError::Closed);
                    }
                    outcome => outcome?,
                }
                continue;
            };
            self.receive.take(len);
            send(&mut socket, &answer).await?;
            match step {
                Step::Next => {}
                Step::Abort => return Ok(None),
                Step::Serve(agreed) => return Ok(Some((socket, agreed, client))),
                Step::StartTls => {
                    socket = self.start_tls(socket, &mut client).await?;
                    negotiation.encrypted();
                }
            }
        }
    }

    async fn start_tls(&mut self, socket: Socket, client: &mut Client) -> Result<Socket, NbdError> {
        let (Some((tls, _)), Socket::Plain(plain)) = (&self.server.tls, socket) else {
            return Err(NbdError::Tls(io::Error::other("it was not offered")));
        };
        // NOTE: what came in plain text must not be taken for what came encrypted.
        if !self.receive.bytes().is_empty() {
            return Err(NbdError::PlainBehindStartTls);
        }
        let stream = tls.0.accept(plain).await.map_err(NbdError::Tls)?;
        // The names by which exports know this client are those of its certificate.
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        client.tls_names = certificates.first().map(|certificate| names(certificate)).unwrap_or_default();
        Ok(Socket::Tls(Box::new(stream)))
    }

    /// Transmission. `start` makes the futures that `running` holds.
    async fn serve<F: Future<Output = Finished>>(
        &mut self,
        socket: &mut Socket,
        export: &Export<D>,
        session: &mut Session<D>,
        running: &mut FuturesUnordered<F>,
        start: impl Fn(Work<D>) -> F + Copy,
    ) -> Result<(), NbdError> {
        let every = self.server.options.stall_timeout / LOOKS;
        let clock = &*self.server.options.clock;
        let mut tick = clock.sleep(every);
        let mut turn = None;
        let mut shutdown = self.server.shutdown.subscribe();
        let (mut grace, mut limit): (Option<Task>, Option<Task>) = (None, None);
        let (mut before, mut quiet) = (0, 0);
        loop {
            tokio::select! {
                biased;
                over = poll_fn(|cx| self.poll_io(socket, session, running, (start, &mut turn), cx)) => return over,
                () = export.revoked() => return Err(NbdError::Revoked),
                () = &mut tick => {
                    tick = clock.sleep(every);
                    // A client that neither takes its replies nor sends what it began moves no byte. One
                    // whose commands run waits for us.
                    let now = self.receive.received() + session.out.sent_bytes();
                    let waits = session.out.queued_bytes() > 0 || session.is_amid(&self.receive) && running.is_empty();
                    quiet = if waits && now == before { quiet + 1 } else { 0 };
                    before = now;
                    if quiet >= LOOKS {
                        return Err(NbdError::Stalled(every * quiet));
                    }
                }
                _ = shutdown.wait_for(|stop| *stop), if limit.is_none() => {
                    session.stopping = true;
                    (grace, limit) = (Some(clock.sleep(SHUTDOWN_GRACE)), Some(clock.sleep(SHUTDOWN_LIMIT)));
                }
                () = over(&mut grace), if session.is_idle() && grace.is_some() => return Ok(()),
                () = over(&mut limit), if limit.is_some() => return Ok(()),
            }
        }
    }

    /// Resolves when the limits of the volume let the request through that waits for them.
    fn turn(&self, session: &Session<D>) -> Turn {
        let (line, clock) = (session.line(), self.server.options.clock.clone());
        Box::pin(async move {
            if let Some(line) = line {
                line.passed(|| clock.now(), |time| clock.sleep(time)).await;
            }
        })
    }

    /// Moves everything as far as it goes: received requests, commands, replies. Ready when the connection is over.
    fn poll_io<F: Future<Output = Finished>>(
        &mut self,
        socket: &mut Socket,
        session: &mut Session<D>,
        running: &mut FuturesUnordered<F>,
        (start, turn): (impl Fn(Work<D>) -> F, &mut Option<Turn>),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), NbdError>> {
        loop {
            // Requests in, work on its way, and what has ended queued as replies.
            let want = session.advance(&mut self.receive)?;
            running.extend(session.started.drain(..).map(&start));
            while let Poll::Ready(Some(finished)) = running.poll_next_unpin(cx) {
                session.complete(finished);
            }
            // All replies in one write.
            let had_replies = session.out.queued_bytes() > 0;
            let flushed = session.out.poll_flush(socket, cx)?.is_ready();
            session.note_memory();
            self.server.metrics.add(&mut session.counted);
            if session.is_over() {
                return Poll::Ready(Ok(()));
            }
            match want {
                // What ended or was sent made room for more.
                Want::Room if had_replies && flushed => continue,
                Want::Room | Want::Nothing => return Poll::Pending,
                // Nothing more is read meanwhile.
                Want::Turn => {
                    let waits = turn.get_or_insert_with(|| self.turn(session));
                    ready!(waits.as_mut().poll(cx));
                    *turn = None;
                    session.pass_limits();
                    continue;
                }
                Want::Bytes => {}
            }
            match self.receive.poll_fill(socket, session.payload(), cx) {
                Poll::Ready(Ok(direct)) => {
                    session.received = self.server.options.clock.now();
                    session.payload_filled(direct);
                }
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Err(NbdError::Closed));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

async fn send(socket: &mut Socket, bytes: &[u8]) -> io::Result<()> {
    match socket {
        Socket::Plain(plain) => plain.write_all(bytes).await,
        Socket::Tls(stream) => {
            stream.write_all(bytes).await?;
            stream.flush().await
        }
    }
}
