//! `quoin serve`: serves an array in the foreground.

use crate::{
    bay::{PathBay, ServingBay},
    data::DataDir,
    files,
    memory::{self, MEMORY_LIMIT_VARIABLE},
    nbd,
    notes::{FileNotes, NOTES_FILE},
    portals::{self, Portals},
};
use quoin_array::{Array, ArrayOptions, Bay, Listen};
use quoin_cli::{API_FILE, Failure, Global};
use quoin_config::Config;
use quoin_drive::Patience;
use quoin_emulate::EmulatedDrive;
use quoin_iscsi::IscsiServer;
use quoin_pool::MemoryShares;
use quoin_rest::{CutOff, FrontEnd, Limits, Memory, Server, Token};
use quoin_target::{SessionMemory, Target};
use quoin_volume::Volume;
use quoin_world::{OneShot, Thread, World};
use quoin_world_linux::LinuxWorld;
use std::{
    collections::BTreeMap,
    fs,
    future::Future,
    io::{self, IsTerminal},
    net::{SocketAddr, TcpListener},
    num::NonZeroUsize,
    path::PathBuf,
    process,
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing_subscriber::EnvFilter;

pub(crate) const DEFAULT_API: &str = "127.0.0.1:8470";
pub(crate) const DEFAULT_THREADS_MAX: usize = 4;
const LOCK_FILE: &str = "run/lock";
/// How often the process checks whether the catalog has been read, before it admits initiators.
const RESTORED_POLL: Duration = Duration::from_millis(5);
/// How long a stop waits for drives that do not answer, beside the time until they are suspect.
const STALLED_STOP_WITHIN: Duration = Duration::from_secs(15);
const STALLED_LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long requests to the management interface may take to end when the array stops.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(5);

/// Options of `quoin serve`.
#[derive(clap::Args)]
#[command(
    after_help = "It runs in the foreground and logs to standard error; QUOIN_LOG chooses what, such as \
                        debug. SIGTERM and SIGINT stop it cleanly, a second one at once. Options not given are \
                        taken from [serve] in quoin.toml.\n\nExamples:\n  quoin serve --data /srv/a\n  \
                        quoin serve --data /srv/a --iscsi 10.0.0.5:3260 --api 127.0.0.1:8470\n  \
                        quoin serve --data /srv/a --iscsi 10.0.0.5:3260 --iscsi 10.0.1.5:3260\n  \
                        quoin serve --data /srv/a --nbd 127.0.0.1:10809\n  \
                        quoin serve --data /srv/a --without-missing\n  \
                        quoin serve --data /srv/a --nbd 10.0.0.5:10809 --nbd-tls-cert server.pem \
                        --nbd-tls-key server.key --nbd-tls-client-ca ca.pem"
)]
pub(crate) struct Args {
    /// iSCSI portal address; repeat it for several, each a target port of its own [default: 127.0.0.1:3260]
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',')]
    iscsi: Vec<SocketAddr>,
    /// Address of the management interface [default: 127.0.0.1:8470]
    #[arg(long, value_name = "ADDRESS:PORT")]
    api: Option<SocketAddr>,
    /// Allow --api to be an address that is not loopback; the interface is not encrypted
    #[arg(long)]
    api_remote: bool,
    /// RAM to use, such as 2GiB; at least 64MiB [default: a quarter of the system's, at most 4 GiB]
    #[arg(long, value_name = "SIZE", env = MEMORY_LIMIT_VARIABLE)]
    memory_limit: Option<String>,
    /// Number of data threads [default: one per core, at most 4]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Seconds after which a drive that does not answer is suspect [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    drive_suspect: Option<u32>,
    /// Seconds after which it has failed: the pool goes on without it if it can, or goes offline until it answers
    /// [default: 20]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    drive_fail: Option<u32>,
    /// Start without drives that are missing, also where the others do not tell whether the pool was used with those alone:
    /// you know that it was not. Data that cannot be read without them gets medium errors until they are back
    #[arg(long)]
    without_missing: bool,
    #[command(flatten)]
    nbd: nbd::Args,
}

pub(crate) fn run(global: &Global, args: Args) -> Result<(), Failure> {
    log_to_stderr();
    let data = DataDir::of(global)?;
    let config = data.read_config()?;
    // What can be refused is read and checked before anything starts.
    let token = Token::new(&data.read_token()?);
    let metrics_token = Token::new(&data.metrics_token()?);
    // NOTE: the lock before the drives and the listeners: a second process stops here.
    let _lock = lock(&data)?;
    let iscsi = if args.iscsi.is_empty() { config.serve.iscsi.clone() } else { args.iscsi };
    let iscsi = portals::listen_all(iscsi)?;
    let wanted = args.api.or(config.serve.api);
    if let Some(address) = wanted.filter(|address| !address.ip().is_loopback() && !args.api_remote) {
        return Err(Failure::usage(
            "array not started",
            format!("--api {address} is not a loopback address, and the interface is not encrypted"),
            "choose a port of 127.0.0.1, or add --api-remote if the network is trusted",
        ));
    }
    let api = listen("api", wanted, DEFAULT_API)?;
    let limit = args.memory_limit.or(config.serve.memory_limit.map(|size| size.0.to_string()));
    let memory = memory::shares(limit.as_deref())?;
    let without_missing = args.without_missing;
    let Some((suspect, fail)) = config.serve.drive_seconds(args.drive_suspect, args.drive_fail) else {
        return Err(Failure::usage(
            "not served",
            "a drive would have failed before it is suspect",
            "choose --drive-fail, or drive_fail_s in quoin.toml, not less than --drive-suspect",
        ));
    };
    let patience = Patience {
        suspect_after: Duration::from_secs(suspect.into()),
        fail_after: Duration::from_secs(fail.into()),
    };
    let nbd = nbd::listen(args.nbd, &config.serve, &data)?;
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = args.threads.or(config.serve.threads).map(NonZeroUsize::get);
    let world = LinuxWorld::start(threads.unwrap_or(cores.min(DEFAULT_THREADS_MAX))).map_err(|error| {
        Failure::new("array not started", "this system", error.to_string(), "resolve the cause given above")
    })?;
    // From here on the array runs, until a signal stops it.
    let listening = Listening { iscsi, nbd, api };
    let bay =
        PathBay::new(data.drive_paths(&config), patience).with_emulated(emulated(&data, &config, &world));
    let opening = Opening { memory, without_missing };
    let outcome = block_on(serve(&data, &config, [token, metrics_token], &world, opening, (bay, listening)));
    drop(fs::remove_file(data.file(API_FILE)));
    world.shutdown();
    outcome
}

/// The drives of the configuration that are emulated, by their paths.
fn emulated(
    data: &DataDir,
    config: &Config,
    world: &Arc<LinuxWorld>,
) -> BTreeMap<PathBuf, Arc<EmulatedDrive>> {
    let drives = data.drive_paths(config).into_iter().zip(&config.drives);
    let emulated = drives.filter_map(|(path, drive)| {
        let emulation = drive.emulate?;
        Some((path, EmulatedDrive::new(world.clone(), emulation)))
    });
    emulated.collect()
}

/// Where clients are waited for.
struct Listening {
    iscsi: Vec<TcpListener>,
    nbd: nbd::Listening,
    api: TcpListener,
}

/// What serves clients and hosts until it is stopped.
struct Running {
    array: Arc<Array>,
    /// The array's own work.
    ended: OneShot<()>,
    iscsi: Arc<IscsiServer<Volume>>,
    nbd: nbd::Front,
    /// The management interface.
    api: JoinHandle<io::Result<()>>,
    /// Dropped to end it.
    stop_api: oneshot::Sender<()>,
}

impl Running {
    /// Stops all of it. The process ends without waiting any longer for drives that do not answer for `suspect_after` and
    /// [`STALLED_STOP_WITHIN`] together.
    async fn stop(self, suspect_after: Duration) {
        // NOTE: the array is stopped once neither the management interface nor a session of a host can use it.
        drop(self.stop_api);
        self.array.hurry_drives();
        tokio::spawn(give_up_stalled(self.array.clone(), suspect_after));
        drop(timeout(REQUESTS_END_WITHIN, self.api).await);
        tokio::join!(self.iscsi.shutdown(), self.nbd.shutdown());
        self.array.stop();
        self.ended.await;
    }
}

fn array_options(config: &Config, nbd: Vec<String>, memory: &MemoryShares) -> ArrayOptions {
    ArrayOptions {
        name: config.name.clone(),
        pool: config.pool,
        iqn: config.iqn.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        nbd,
        pool_options: memory.pool_options(),
        space: config.space.percents().into(),
        spare_domains: config.space.spare_domains.unwrap_or(0),
    }
}

/// How the pool is opened.
struct Opening {
    memory: MemoryShares,
    without_missing: bool,
}

async fn serve(
    data: &DataDir,
    config: &Config,
    [token, metrics_token]: [Token; 2],
    world: &Arc<LinuxWorld>,
    Opening { memory, without_missing }: Opening,
    (bay, listening): (PathBay, Listening),
) -> Result<(), Failure> {
    let Listening { iscsi, nbd, api } = listening;
    // Descriptors are shared out among the interfaces.
    let shares = files::share_out(config.drives.len());
    let broken = |error: io::Error| {
        Failure::new("array not started", "the process", error.to_string(), "check the limits of the system")
    };
    let suspect_after = bay.patience().suspect_after;
    let signals = Signals::new().map_err(broken)?;
    let api_address = api.local_addr().map_err(broken)?;
    let target = Target::new(&config.iqn);
    let mut options = array_options(config, nbd.addresses(), &memory);
    options.pool_options.without_missing = without_missing;
    // The array, with its drives and the notes of its event log.
    let notes = Arc::new(FileNotes::new(data.file(NOTES_FILE)));
    let bay = ServingBay { drives: bay, notes, data: data.clone() };
    let sessions = SessionMemory::new(memory.sessions_bytes);
    let array = Array::new(world.clone(), Box::new(bay), target.clone(), options);
    array.set_event_retention(config.events.retention());
    let front = front_end(world, &array, target, sessions.clone(), shares.iscsi);
    let portals = Portals::new(front.clone(), world.clone(), iscsi).map_err(broken)?;
    let configured = portals.configured();
    array.listen_with(Box::new(portals));
    let ended = world.run_on(Thread::Background, array.clone().run());
    let nbd = nbd.serve(world, &array, sessions.clone(), shares.nbd).map_err(broken)?;
    let (stop_api, api_stops) = oneshot::channel::<()>();
    let (counted, nbd_counts) = (front.clone(), nbd.counts());
    // The management interface, whose address is written down once it is served.
    let server = Server {
        array: array.clone(),
        world: world.clone(),
        token: Arc::new(token),
        metrics_token: Arc::new(metrics_token),
        memory: Memory { limit_bytes: memory.limit_bytes(), sessions },
        front_ends: Arc::new(move || vec![iscsi_front_end(&counted), nbd_counts()]),
    };
    let of_address = shares.management.div_ceil(2);
    let limits = Limits { total: shares.management, of_address, ..Limits::default() };
    let api = tokio::spawn(quoin_rest::serve(api, server, limits, async { drop(api_stops.await) }));
    let running = Running { array, ended, iscsi: front, nbd, api, stop_api };
    data.write(API_FILE, format!("{api_address}\n").as_bytes(), 0o644)?;
    tracing::info!(portals = ?configured, api = %api_address, iqn = config.iqn, "serving");

    signals.wait().await;
    tracing::info!("stopping");
    running.stop(suspect_after).await;
    tracing::info!("stopped");
    Ok(())
}

/// Ends the process if the stop does not finish because drives do not answer. All acknowledged data is on the drives,
/// and nothing else is promised.
async fn give_up_stalled(array: Arc<Array>, suspect_after: Duration) {
    let mut left = suspect_after + STALLED_STOP_WITHIN;
    loop {
        sleep(STALLED_LOOK_EVERY).await;
        let Some(why) = array.stalled_drives() else { continue };
        left = left.saturating_sub(STALLED_LOOK_EVERY);
        if left.is_zero() {
            tracing::warn!(%why, "stopped without waiting any longer; the next start recovers");
            process::exit(1);
        }
    }
}

/// Waits until mappings and exports are known. Clients wait in the backlog of their listener meanwhile: a client that
/// reconnects after a restart and does not find its volume would fail its I/O.
pub(crate) async fn restored(array: &Array) {
    while !array.is_restored() {
        sleep(RESTORED_POLL).await;
    }
}

fn front_end(
    world: &Arc<LinuxWorld>,
    array: &Arc<Array>,
    target: Arc<Target<Volume>>,
    memory: Arc<SessionMemory>,
    max_connections: usize,
) -> Arc<IscsiServer<Volume>> {
    let (clock, random, array) = (world.clone(), world.clone(), array.clone());
    let options = quoin_iscsi::Options {
        wall_clock_ms: Box::new(move || clock.wall_clock_ms()),
        login_failed: Box::new(move |failure: quoin_iscsi::LoginFailure| {
            let (initiator, target) = (failure.initiator.as_deref(), failure.other_target.as_deref());
            array.login_refused(initiator, target, &failure.peer.to_string(), failure.why);
        }),
        memory,
        max_connections,
        clock: world.clone(),
        ..quoin_iscsi::Options::new(move || random.random_u64())
    };
    IscsiServer::new(target, options)
}

/// The counters of the iSCSI server, for `/metrics`.
fn iscsi_front_end(server: &IscsiServer<Volume>) -> FrontEnd {
    let counted = server.metrics();
    FrontEnd {
        protocol: "iscsi",
        connections: counted.connections,
        connections_refused: counted.connections_refused,
        logins: counted.logins,
        logins_failed: counted.logins_failed,
        requests: counted.commands,
        errors: counted.failures,
        read_bytes: counted.read_bytes,
        written_bytes: counted.written_bytes,
        protocol_errors: counted.rejects + counted.digest_errors,
        cut_off: Some(CutOff { silent: counted.silent, stalled: counted.stalled }),
    }
}

/// The signals that stop the array; SIGHUP does nothing.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    _hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the first signal. From then on a second one ends the process.
    async fn wait(mut self) {
        self.stop().await;
        tokio::spawn(async move {
            self.stop().await;
            tracing::warn!("second signal: stopped at once; the next start recovers");
            process::exit(1);
        });
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Runs the management side, which is not on the array's threads.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a process that cannot have a runtime cannot go on").block_on(future)
}

fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("QUOIN_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(ansi).init();
}

/// Makes sure that no other process serves this array. The lock goes with the process.
fn lock(data: &DataDir) -> Result<fs::File, Failure> {
    let path = data.file(LOCK_FILE);
    let opened = fs::create_dir_all(data.file("run"))
        .and_then(|()| fs::OpenOptions::new().create(true).append(true).open(&path));
    let file = opened.map_err(|error| data.unwritable(LOCK_FILE, &error))?;
    file.try_lock().map_err(|_| {
        let shown = data.path().display().to_string();
        let why = format!("another process serves {shown}");
        Failure::new("array not started", shown, why, "use that array, or stop it first with SIGTERM")
    })?;
    Ok(file)
}

/// Listens on all of them, or on the default if there is none.
pub(crate) fn listen(
    option: &str,
    wanted: Option<SocketAddr>,
    default: &str,
) -> Result<TcpListener, Failure> {
    let address = wanted.map_or_else(|| default.to_owned(), |address| address.to_string());
    TcpListener::bind(&address).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => format!("another process listens on {address}"),
            _ => format!("cannot listen on {address}: {error}"),
        };
        let next =
            format!("choose another address: --{option} ADDRESS:PORT; ss -ltnp lists listening processes");
        Failure::new("array not started", format!("--{option} {address}"), why, next)
    })
}
