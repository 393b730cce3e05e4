//! Serving NBD: where, and with what encryption.

use crate::data::DataDir;
use quoin_array::{Array, Refusal};
use quoin_cli::Failure;
use quoin_config::{ServeConfig, TlsSetting};
use quoin_nbd::{Accepted, Listener, NbdServer, Options, Refused, Tls, TlsMode};
use quoin_rest::FrontEnd;
use quoin_target::SessionMemory;
use quoin_volume::Volume;
use quoin_world::{Thread, World};
use quoin_world_linux::LinuxWorld;
use rustix::{fs::Mode, process::umask};
use std::{
    fs,
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::FileTypeExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::task::JoinHandle;

/// Options of `quoin serve` about NBD.
#[derive(clap::Args)]
#[command(next_help_heading = "NBD")]
pub(crate) struct Args {
    /// Where NBD is served over TCP, usually port 10809 [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT")]
    nbd: Option<SocketAddr>,
    /// Where NBD is served on this machine: a Unix socket that its owner can open [default: nowhere]
    #[arg(long, value_name = "PATH")]
    nbd_socket: Option<PathBuf>,
    /// Whether clients over TCP encrypt [default: required if there is a certificate, else off]
    #[arg(long, value_enum)]
    nbd_tls: Option<TlsSetting>,
    /// The server's certificate and those between it and its authority, PEM
    #[arg(long, value_name = "FILE")]
    nbd_tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE")]
    nbd_tls_key: Option<PathBuf>,
    /// Authorities, PEM: every TLS client must have a certificate of one of them
    #[arg(long, value_name = "FILE")]
    nbd_tls_client_ca: Option<PathBuf>,
    /// Allow --nbd to be an address that others reach though TLS is not required
    #[arg(long)]
    nbd_remote: bool,
}

/// What `quoin serve` listens on for NBD.
#[derive(Default)]
pub(crate) struct Listening {
    tcp: Option<TcpListener>,
    unix: Option<(UnixListener, PathBuf)>,
    tls: Option<(Tls, TlsMode)>,
}

/// The running front end.
pub(crate) struct Front {
    server: Arc<NbdServer<Volume>>,
    accepting: Vec<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

fn refused(why: impl Into<String>, next: impl Into<String>) -> Failure {
    Failure::usage("array not started", why, next)
}

/// Opens the sockets that the command line and the configuration ask for. Called before there are other threads.
pub(crate) fn listen(args: Args, config: &ServeConfig, data: &DataDir) -> Result<Listening, Failure> {
    let file = |given: Option<PathBuf>, configured: &Option<PathBuf>| {
        given.or_else(|| configured.as_ref().map(|path| data.path().join(path)))
    };
    // Options go before the configuration, whose paths are relative to the data directory.
    let certificate = file(args.nbd_tls_cert, &config.nbd_tls_cert);
    let key = file(args.nbd_tls_key, &config.nbd_tls_key);
    let authorities = file(args.nbd_tls_client_ca, &config.nbd_tls_client_ca);
    let setting = args.nbd_tls.or(config.nbd_tls);
    let tls = tls(setting, certificate.as_deref(), key.as_deref(), authorities.as_deref())?;
    // An address that others reach needs TLS, unless the administrator says that it does not.
    let address = args.nbd.or(config.nbd);
    let encrypted = matches!(tls, Some((_, TlsMode::Required)));
    let remote = args.nbd_remote || config.nbd_remote;
    if let Some(address) = address.filter(|address| !address.ip().is_loopback() && !encrypted && !remote) {
        return Err(refused(
            format!("--nbd {address} is not a loopback address, and TLS is not required of clients"),
            "give --nbd-tls-cert and --nbd-tls-key, or choose a port of 127.0.0.1, or add --nbd-remote if the \
             network is trusted",
        ));
    }
    let tcp = address.map(|address| crate::serve::listen("nbd", Some(address), "")).transpose()?;
    let unix = file(args.nbd_socket, &config.nbd_socket).map(listen_unix).transpose()?;
    Ok(Listening { tcp, unix, tls })
}

fn tls(
    setting: Option<TlsSetting>,
    certificate: Option<&Path>,
    key: Option<&Path>,
    authorities: Option<&Path>,
) -> Result<Option<(Tls, TlsMode)>, Failure> {
    // What was asked for; without a setting, files of certificates ask for TLS.
    let mode = match setting {
        Some(TlsSetting::Off) => return Ok(None),
        Some(TlsSetting::Optional) => TlsMode::Optional,
        Some(TlsSetting::Required) => TlsMode::Required,
        None if certificate.is_none() && key.is_none() && authorities.is_none() => return Ok(None),
        None => TlsMode::Required,
    };
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Err(refused(
            "NBD over TLS needs a certificate and its key",
            "give both: --nbd-tls-cert FILE --nbd-tls-key FILE",
        ));
    };
    let tls = Tls::load(certificate, key, authorities).map_err(|error| {
        let next = "give PEM files that belong together and that this user can read";
        Failure::new("array not started", "NBD over TLS", format!("NBD over TLS: {error}"), next)
    })?;
    Ok(Some((tls, mode)))
}

/// A socket that only its owner can open. A socket left over by a process that ended is replaced.
fn listen_unix(path: PathBuf) -> Result<(UnixListener, PathBuf), Failure> {
    let bind = || {
        // NOTE: the mask is that of the whole process; there are no other threads yet.
        let before = umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        umask(before);
        bound
    };
    let is_socket = || fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket());
    // Of a process that ended nothing accepts: a connection is refused.
    let is_left_over = || {
        let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
        is_socket() && UnixStream::connect(&path).err().is_some_and(refused)
    };
    let bound = match bind() {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_left_over() => {
            fs::remove_file(&path).and_then(|()| bind())
        }
        bound => bound,
    };
    match bound {
        Ok(listener) => Ok((listener, path)),
        Err(error) => {
            let shown = path.display().to_string();
            let why = format!("cannot listen on {shown}: {error}");
            let next = "choose another path: --nbd-socket PATH; paths of sockets have at most 107 bytes";
            Err(Failure::new("array not started", format!("--nbd-socket {shown}"), why, next))
        }
    }
}

impl Listening {
    /// Where it listens, for people.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let tcp = self.tcp.iter().filter_map(|tcp| tcp.local_addr().ok());
        let unix = self.unix.iter().map(|(_, path)| format!("unix:{}", path.display()));
        tcp.map(|address| address.to_string()).chain(unix).collect()
    }

    /// Serves the array's exports, once it is known which there are.
    pub(crate) fn serve(
        self,
        world: &Arc<LinuxWorld>,
        array: &Arc<Array>,
        memory: Arc<SessionMemory>,
        max_connections: usize,
    ) -> io::Result<Front> {
        let (clock, wall_clock) = (world.clone(), world.clone());
        let wall_clock_ms = Box::new(move || wall_clock.wall_clock_ms());
        let told = array.clone();
        let refused = Box::new(move |refused: Refused| told.refused(refusal(refused)));
        let options =
            Options { clock, wall_clock_ms, memory, refused, max_connections, ..Options::default() };
        let server = NbdServer::new(array.exports().clone(), self.tls, options);
        let mut listeners = Vec::new();
        if let Some(tcp) = self.tcp {
            tcp.set_nonblocking(true)?;
            listeners.push(Listener::Tcp(tokio::net::TcpListener::from_std(tcp)?));
        }
        let socket = match self.unix {
            Some((unix, path)) => {
                unix.set_nonblocking(true)?;
                listeners.push(Listener::Unix(tokio::net::UnixListener::from_std(unix)?));
                Some(path)
            }
            None => None,
        };
        // Clients wait in the backlog until it is known which exports there are.
        let accept = |listener| {
            let (server, world, array) = (server.clone(), world.clone(), array.clone());
            tokio::spawn(async move {
                crate::serve::restored(&array).await;
                server.accept(listener, spread(world)).await;
            })
        };
        let accepting = listeners.into_iter().map(accept).collect();
        Ok(Front { server, accepting, socket })
    }
}

impl Front {
    /// Its counters, for `/metrics`.
    pub(crate) fn counts(&self) -> impl Fn() -> FrontEnd + Send + Sync + use<> {
        let server = self.server.clone();
        move || {
            let counted = server.metrics();
            FrontEnd {
                protocol: "nbd",
                connections: counted.connections,
                connections_refused: counted.connections_refused,
                logins: counted.negotiations,
                logins_failed: counted.negotiations_failed,
                requests: counted.requests,
                errors: counted.errors,
                read_bytes: counted.read_bytes,
                written_bytes: counted.written_bytes,
                protocol_errors: counted.protocol_errors,
                cut_off: None,
            }
        }
    }

    /// Ends all connections.
    pub(crate) async fn shutdown(self) {
        self.server.shutdown().await;
        for accepting in self.accepting {
            accepting.abort();
            drop(accepting.await);
        }
        if let Some(path) = self.socket {
            drop(fs::remove_file(path));
        }
    }
}

/// A refused client, as the event log records it.
fn refusal(Refused { peer, export, tls_name, why, detail }: Refused) -> Refusal {
    let object = export.map_or_else(|| "NBD".to_owned(), |name| format!("export {name}"));
    Refusal { detail, ..Refusal::of_client("nbd", object, why, tls_name, peer) }
}

/// Gives each connection to the next data thread, where it stays.
fn spread(world: Arc<LinuxWorld>) -> impl FnMut(Accepted<Volume>) {
    let mut threads = (0..world.data_threads()).cycle();
    move |accepted| {
        let index = threads.next().unwrap_or(0);
        world.spawn_local_on(Thread::Data(index), move || accepted.serve());
    }
}
