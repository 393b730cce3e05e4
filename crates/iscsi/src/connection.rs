//! One connection, from its first byte to its last, on one data thread.

use crate::{
    IscsiError, IscsiServer,
    command::{Finished, Work, perform},
    login::{Authority, Established, Login, LoginStatus, SessionKind, Step},
    login_throttle::{LoginFailure, PendingLogin},
    pdu::{Framing, FramingError, LoginRequest, LoginResponse, opcode},
    receive::Receive,
    sequence::QUEUE_DEPTH,
    server::{OpenGroup, Portal},
    session::{End, Session},
    stall::PATIENCE_TICKS,
    strangers::Stranger,
    text::Text,
    transmit::Transmit,
    tsih::{Join, TsihLease},
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use quoin_target::{Credentials, NexusName, Notice, Notices, over, within};
use quoin_volume::BlockDevice;
use quoin_world::{Slice, Task};
use std::{
    future::{Future, pending, poll_fn},
    net::SocketAddr,
    pin::pin,
    sync::atomic::Ordering,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite};

/// Times [`Options::ping_after`](crate::Options::ping_after) that nothing may be heard of a peer.
const SILENT_TICKS: u32 = 3;
/// Longest data segment of a login request we take.
const MAX_LOGIN_DATA_BYTES: usize = 64 * 1024;

pub(crate) struct Connection<'a, D: BlockDevice, S> {
    pub(crate) server: &'a IscsiServer<D>,
    pub(crate) stream: S,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// The target portal group through which it came.
    pub(crate) group: OpenGroup,
    pub(crate) receive: Receive,
    /// Held until it has logged in.
    pub(crate) pending: Option<PendingLogin>,
    /// Its place among sessions of initiators that no host has, if it is one.
    pub(crate) stranger: Option<Stranger<'a>>,
    /// The session's TSIH, once it has one.
    pub(crate) tsih: Option<TsihLease<'a>>,
    /// Ticks since something was received; `None`: there was no tick since.
    pub(crate) quiet_ticks: Option<u32>,
}

impl<'a, D: BlockDevice, S: AsyncRead + AsyncWrite + Unpin> Connection<'a, D, S> {
    /// Serves the connection until it ends, and what it started has ended.
    pub(crate) async fn run(mut self) -> Result<(), IscsiError> {
        let (limit, clock) = (self.server.options.login_timeout, &*self.server.options.clock);
        let closed = self.server.closed(self.group);
        let login = tokio::select! {
            biased;
            () = closed => return Err(IscsiError::ShutDown),
            login = within(clock, limit, self.login()) => login.unwrap_or(Err(IscsiError::LoginTimeout(limit))),
        };
        // Login is bounded in time, so that a peer that does not complete it gives up its place.
        let mut session = match login {
            Ok(session) => session,
            Err(error) => {
                self.server.metrics.logins_failed.fetch_add(1, Ordering::Relaxed);
                if let Some(why) = error.ends_login() {
                    self.tell(LoginFailure { why, ..self.failure() });
                }
                return Err(error);
            }
        };
        // Full feature phase. The place among those that have not logged in is free for another.
        self.pending = None;
        self.server.metrics.logins.fetch_add(1, Ordering::Relaxed);
        let mut running = FuturesUnordered::new();
        let perform = |work| perform(work, clock);
        let outcome = self.serve(&mut session, &mut running, perform).await;
        match &outcome {
            Err(IscsiError::Silent(_)) => session.counted.silent += 1,
            Err(IscsiError::Stalled { .. }) => session.counted.stalled += 1,
            _ => {}
        }
        // The socket goes first; the nexus, and with it a session that replaces this one, waits for the rest.
        drop(self.stream);
        // NOTE: notices are still taken: a session that preempts this one waits until its notice is taken, and a task of this
        // session may wait for that session.
        let notices = session.nexus.as_ref().map(|nexus| nexus.notices());
        session.give_up_limited();
        session.nexus.iter().for_each(|nexus| nexus.let_go());
        running.extend(session.started.drain(..).map(perform));
        loop {
            tokio::select! {
                finished = running.next() => match finished {
                    Some(finished) => session.complete(finished),
                    None => break,
                },
                notice = next_notice(notices.as_ref()) => session.notice(notice),
            }
            running.extend(session.started.drain(..).map(perform));
        }
        session.tell(&self.server.metrics);
        outcome
    }

    async fn login(&mut self) -> Result<Session<D>, IscsiError> {
        let server = self.server;
        let mut login = Login::new(server.target.port(self.group.group)).before(server);
        // An address whose logins failed before waits, but never so long that this login runs out of time by
        // it.
        let wait = self.pending.as_ref().map_or(Duration::ZERO, PendingLogin::wait);
        if !wait.is_zero() {
            server.options.clock.sleep(wait.min(server.options.login_timeout / 2)).await;
        }
        loop {
            let (request, data) = self.login_request().await?;
            match login.receive(&request, &data) {
                Step::Respond(response, text) => self.send_login(response, text).await?,
                Step::Refuse(response, why) => {
                    let status = LoginStatus(response.status_class, response.status_detail);
                    self.login_failed(&login, status, why);
                    let initiator = login.initiator().unwrap_or("unknown").to_string();
                    self.send_login(response, Vec::new()).await?;
                    return Err(IscsiError::LoginRefused { initiator, status, why });
                }
                Step::Done(response, text, established) => {
                    if let Some(pending) = self.pending.as_ref().filter(|_| login.is_proven()) {
                        pending.proven();
                    }
                    return self.establish(&mut login, &request, response, text, &established).await;
                }
            }
        }
    }

    /// Counts a refused login against the address it came from, and tells of it.
    fn login_failed(&self, login: &Login, status: LoginStatus, why: &'static str) {
        if status == LoginStatus::AUTHENTICATION_FAILURE {
            self.server.metrics.authentications_failed.fetch_add(1, Ordering::Relaxed);
        }
        let initiator = login.initiator().map(str::to_owned);
        let other_target = login.other_target().map(str::to_owned);
        let failures = self.pending.as_ref().map_or(0, PendingLogin::failed);
        let status = Some(status);
        self.tell(LoginFailure { initiator, other_target, why, status, failures, ..self.failure() });
    }

    /// A failure of which nothing is known but where it came from.
    fn failure(&self) -> LoginFailure {
        let (initiator, other_target, peer) = (None, None, self.peer);
        LoginFailure { initiator, other_target, peer, why: "", status: None, failures: 0 }
    }

    fn tell(&self, failure: LoginFailure) {
        (self.server.options.login_failed)(failure);
    }

    async fn login_request(&mut self) -> Result<(LoginRequest, Vec<u8>), IscsiError> {
        let framing =
            Framing { header_digest: false, data_digest: false, max_data_bytes: MAX_LOGIN_DATA_BYTES };
        loop {
            if let Some(pdu) = self.receive.next(framing)? {
                if pdu.bhs.operation() != opcode::LOGIN_REQUEST {
                    return Err(IscsiError::Protocol("a PDU other than a login request before login"));
                }
                return Ok((pdu.bhs.into(), pdu.data.to_vec()));
            }
            let (receive, stream) = (&mut self.receive, &mut self.stream);
            if poll_fn(|cx| receive.poll_fill(stream, cx)).await? == 0 {
                return Err(IscsiError::Closed);
            }
        }
    }

    async fn send_login(&mut self, response: LoginResponse, text: Vec<u8>) -> Result<(), IscsiError> {
        let mut out = Transmit::default();
        out.push(response, (!text.is_empty()).then(|| Slice::copy_of(&text)));
        let stream = &mut self.stream;
        Ok(poll_fn(|cx| out.poll_flush(stream, cx)).await?)
    }

    /// Whether the array has a session for one that has proven who it is. A login that names a session wants to join it, or
    /// to take its connection over.
    fn let_in(
        &mut self,
        name: &NexusName,
        established: &Established,
    ) -> Result<(), (LoginStatus, &'static str)> {
        const NO_SUCH: (LoginStatus, &str) =
            (LoginStatus::SESSION_DOES_NOT_EXIST, "the session it wants to join does not exist");
        match (established.tsih, established.kind) {
            (0, _) => {}
            (_, SessionKind::Discovery) => return Err(NO_SUCH),
            (tsih, SessionKind::Normal) => match self.server.tsihs.join(name, tsih, established.cid) {
                // Its session goes on under its TSIH, without the tasks it had (§6.3.4).
                Join::Reinstate => {}
                Join::Add => {
                    return Err((LoginStatus::TOO_MANY_CONNECTIONS, "a session has one connection here"));
                }
                Join::NoSuchSession => return Err(NO_SUCH),
            },
        }
        if !self.server.target.knows(&name.initiator) {
            let place = self.server.strangers.enter();
            let place = place.ok_or((
                LoginStatus::OUT_OF_RESOURCES,
                "too many initiators that no host has are logged in",
            ))?;
            self.stranger = Some(place);
        }
        Ok(())
    }

    async fn establish(
        &mut self,
        login: &mut Login<'_>,
        request: &LoginRequest,
        mut response: LoginResponse,
        text: Vec<u8>,
        established: &Established,
    ) -> Result<Session<D>, IscsiError> {
        let (server, group) = (self.server, self.group.group);
        let name = NexusName { initiator: established.initiator.clone(), isid: established.isid, group };
        if let Err((status, why)) = self.let_in(&name, established) {
            let initiator = Some(name.initiator.clone());
            self.tell(LoginFailure { initiator, why, status: Some(status), ..self.failure() });
            self.send_login(login.refusal(request, status), Vec::new()).await?;
            return Err(IscsiError::LoginRefused { initiator: name.initiator, status, why });
        }
        // To open the nexus waits until an older session of the same name has ended, and all that it ran.
        let nexus = match established.kind {
            SessionKind::Discovery => None,
            SessionKind::Normal => {
                let since_ms = (server.options.wall_clock_ms)();
                let nexus = server.target.connect(name.clone(), self.peer.to_string(), since_ms).await;
                self.tsih = Some(server.tsihs.take(name, established.tsih, established.cid));
                Some(nexus)
            }
        };
        // The last login response carries what the session begins with.
        let stat_sn = response.stat_sn.get().wrapping_add(1);
        // A discovery session ends with its connection: no TSIH is ever used to come back to it.
        response.tsih = self.tsih.as_ref().map_or(u16::MAX, |tsih| tsih.tsih).into();
        response.max_cmd_sn = established.cmd_sn.wrapping_add(QUEUE_DEPTH - 1).into();
        // An initiator may have sent its first commands along with its last login request: they count as come now.
        let (share, now) = (server.options.memory.share(), server.options.clock.now());
        let session = Session::new(established, stat_sn, nexus, self.targets(), share, now);
        self.send_login(response, text).await?;
        let (initiator, peer) = (&established.initiator, self.peer);
        tracing::info!(%initiator, %peer, kind = ?established.kind, "initiator logged in");
        // An initiator of no host may log in, but whoever looks after the array should know.
        if established.kind == SessionKind::Normal && !server.target.knows(initiator) {
            let (why, status) =
                ("no host has this initiator, so it sees no volume", Some(LoginStatus::SUCCESS));
            self.tell(LoginFailure { initiator: Some(initiator.clone()), why, status, ..self.failure() });
        }
        Ok(session)
    }

    /// The answer to SendTargets: this target at every portal.
    fn targets(&self) -> Text {
        let mut text = Text::default();
        text.push("TargetName", self.server.target.iqn());
        let portals = self.server.portals();
        let own = [Portal { address: self.local, group: self.group.group }];
        for Portal { address, group } in if portals.is_empty() { &own[..] } else { &portals } {
            // A wildcard address is, to this initiator, the one it came through.
            let ip =
                if address.ip().is_unspecified() { self.local.ip().to_canonical() } else { address.ip() };
            text.push("TargetAddress", format!("{},{group}", SocketAddr::new(ip, address.port())));
        }
        text
    }

    /// The full feature phase. `start` makes the futures that `running` holds.
    async fn serve<F: Future<Output = Finished>>(
        &mut self,
        session: &mut Session<D>,
        running: &mut FuturesUnordered<F>,
        start: impl Fn(Work<D>) -> F + Copy,
    ) -> Result<(), IscsiError> {
        let notices = session.nexus.as_ref().map(|nexus| nexus.notices());
        let quiet_limit = self.server.options.ping_after;
        let clock = &*self.server.options.clock;
        let mut tick = clock.sleep(quiet_limit);
        let mut closed = pin!(self.server.closed(self.group));
        let mut deadline: Option<Task> = None;
        loop {
            tokio::select! {
                biased;
                // NOTE: I/O goes first: what it brings keeps the connection alive, and says that it has
                // ended.
                over = poll_fn(|cx| self.poll_io(session, running, start, cx)) => return over,
                notice = next_notice(notices.as_ref()) => session.notice(notice),
                () = &mut tick => {
                    tick = clock.sleep(quiet_limit);
                    self.tick(session)?;
                }
                () = &mut closed, if deadline.is_none() => {
                    let limit = self.server.options.logout_time;
                    deadline = Some(clock.sleep(limit));
                    match notices {
                        Some(_) => session.request_logout(limit),
                        None => return Ok(()),
                    }
                }
                () = over(&mut deadline), if deadline.is_some() => {
                    session.announce_drop();
                    let sent = poll_fn(|cx| Poll::Ready(session.out.poll_flush(&mut self.stream, cx))).await;
                    tracing::debug!(peer = %self.peer, told = sent.is_ready(), "initiator did not log out");
                    return Err(IscsiError::ShutDown);
                }
            }
        }
    }

    /// Every [`Options::ping_after`](crate::Options::ping_after): is the peer there, and does it do its part?
    fn tick(&mut self, session: &mut Session<D>) -> Result<(), IscsiError> {
        let period = self.server.options.ping_after;
        // A peer that is there, but does not do its part.
        if let Some(what) = session.tick() {
            return Err(IscsiError::Stalled { what, limit: period * PATIENCE_TICKS as u32 });
        }
        // A peer of which nothing is heard is asked, and given up when it stays silent.
        let quiet_ticks = self.quiet_ticks.map_or(0, |ticks| ticks + 1);
        self.quiet_ticks = Some(quiet_ticks);
        match quiet_ticks {
            0 => {}
            SILENT_TICKS.. => return Err(IscsiError::Silent(period * quiet_ticks)),
            _ if session.nexus.is_some() => session.ping(),
            _ => {}
        }
        Ok(())
    }

    /// Moves everything as far as it goes: received PDUs, commands, replies. Ready when the session is over.
    fn poll_io<F: Future<Output = Finished>>(
        &mut self,
        session: &mut Session<D>,
        running: &mut FuturesUnordered<F>,
        start: impl Fn(Work<D>) -> F,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), IscsiError>> {
        loop {
            // Whole PDUs that were received are taken first, as long as the session takes any.
            let mut wants_bytes = false;
            while session.may_receive() && !wants_bytes {
                match self.receive.next(session.framing()) {
                    Ok(Some(pdu)) => session.receive(pdu),
                    Ok(None) => wants_bytes = true,
                    Err(error) => {
                        session.counted.digest_errors += u64::from(error == FramingError::HeaderDigest);
                        return Poll::Ready(Err(error.into()));
                    }
                }
            }
            // What came together begins together, and what has ended is answered with it.
            running.extend(session.started.drain(..).map(&start));
            while let Poll::Ready(Some(finished)) = running.poll_next_unpin(cx) {
                session.complete(finished);
                running.extend(session.started.drain(..).map(&start));
            }
            // One vectored write for all of it.
            let flushed = session.out.poll_flush(&mut self.stream, cx)?.is_ready();
            session.tell(&self.server.metrics);
            if let Some(end) = session.end().filter(|end| flushed || *end == End::Reinstated) {
                return Poll::Ready(end.into());
            }
            // What was sent made room for commands that waited for it.
            session.pump();
            if !session.started.is_empty() || session.out.queued_bytes() > 0 && flushed {
                continue;
            }
            if !session.may_receive() {
                return Poll::Pending;
            }
            if !wants_bytes {
                continue;
            }
            if self.receive.take_more() {
                // What came in begins to move before more is looked at.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match ready!(self.receive.poll_fill(&mut self.stream, cx))? {
                0 => return Poll::Ready(Err(IscsiError::Closed)),
                _ => {
                    self.quiet_ticks = None;
                    session.heard(self.server.options.clock.now());
                }
            }
        }
    }
}

impl<D: BlockDevice> Authority for IscsiServer<D> {
    fn credentials(&self, initiator: &str) -> Option<Credentials> {
        self.target.credentials(initiator)
    }

    fn random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&(self.options.random_u64)().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The next notice; never for a discovery session.
async fn next_notice(notices: Option<&Notices>) -> Notice {
    match notices {
        Some(notices) => notices.next().await,
        None => pending().await,
    }
}

impl From<End> for Result<(), IscsiError> {
    fn from(end: End) -> Self {
        match end {
            End::LoggedOut | End::TargetReset => Ok(()),
            End::Reinstated => Err(IscsiError::Reinstated),
            End::Protocol(why) => Err(IscsiError::Protocol(why)),
        }
    }
}
