//! A PostgreSQL cluster on the volume: reached over a Unix socket only, run as the user `postgres`.

use crate::process::{Process, children, is_running, run, wait_until};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use std::{
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls};

const READY_LIMIT: Duration = Duration::from_secs(180);
const STOP_LIMIT: Duration = Duration::from_secs(120);
const AS_POSTGRES: [&str; 3] = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
const SETTINGS: &str = "
listen_addresses = ''
max_connections = 40
shared_buffers = 32MB
max_wal_size = 192MB
min_wal_size = 80MB
checkpoint_timeout = 30s
autovacuum_naptime = 5s
log_checkpoints = on
";

/// A cluster and its server.
#[derive(Debug)]
pub(crate) struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    sockets: PathBuf,
    log: PathBuf,
    server: Option<Process>,
    dying: Vec<Pid>,
}

impl Postgres {
    /// Makes a cluster with data checksums in `mountpoint`; it is not started.
    pub(crate) fn create(work: &Path, mountpoint: &Path) -> Result<Self> {
        let postgres = Self {
            programs: programs()?,
            data: mountpoint.join("pg"),
            sockets: work.join("pg"),
            log: work.join("postgres.log"),
            server: None,
            dying: Vec::new(),
        };
        for directory in [work, mountpoint] {
            std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
        }
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&postgres.sockets)?;
        std::fs::DirBuilder::new().mode(0o700).create(&postgres.data)?;
        run(&["chown", "postgres:", &text(&postgres.data), &text(&postgres.sockets)])?;
        let data = text(&postgres.data);
        postgres.run(
            "initdb",
            &["-D", &data, "-k", "-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8"],
        )?;
        let configuration = postgres.data.join("postgresql.conf");
        let defaults = std::fs::read_to_string(&configuration)?;
        let sockets = format!("unix_socket_directories = '{}'\n", text(&postgres.sockets));
        std::fs::write(&configuration, defaults + SETTINGS + &sockets)?;
        Ok(postgres)
    }

    /// Starts the server and returns the time until it answered: its crash recovery, if there was a crash.
    pub(crate) fn start(&mut self, runtime: &Runtime) -> Result<Duration> {
        let started = Instant::now();
        let program = text(&self.programs.join("postgres"));
        let args = [program.as_str(), "-D", &text(&self.data)];
        let mut server = Process::start_as("postgres", &AS_POSTGRES, &args, &self.log)?;
        wait_until("PostgreSQL to answer", READY_LIMIT, || {
            server.alive()?;
            Ok(runtime.block_on(self.connect()).is_ok())
        })?;
        self.server = Some(server);
        Ok(started.elapsed())
    }

    /// Kills every process of the server at once. They end when their I/O ends: await that with [`Self::ended`].
    pub(crate) fn kill(&mut self) {
        if let Some(server) = &self.server {
            server.signal(Signal::STOP);
            self.dying = children(server.pid());
            for child in &self.dying {
                rustix::process::kill_process(*child, Signal::KILL).ok();
            }
            server.signal(Signal::KILL);
        }
    }

    /// Waits for the end of a killed server and its children.
    pub(crate) fn ended(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            server.ended(STOP_LIMIT)?;
            wait_until("PostgreSQL's processes to end", STOP_LIMIT, || {
                Ok(!self.dying.iter().any(|child| is_running(*child)))
            })?;
        }
        Ok(())
    }

    /// A fast shutdown with its checkpoint.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            server.signal(Signal::INT);
            server.ended(STOP_LIMIT)?;
        }
        Ok(())
    }

    /// Connection settings for clients.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new();
        config.host_path(&self.sockets).user("postgres").dbname("postgres");
        config
    }

    pub(crate) async fn connect(&self) -> Result<Client> {
        connect(&self.config()).await
    }

    /// `pg_amcheck` of every relation: heap and toast, and each B-tree against its heap.
    pub(crate) fn check_relations(&self) -> Result<()> {
        let sockets = text(&self.sockets);
        let checks = ["--heapallindexed", "--parent-check", "--rootdescend", "--install-missing"];
        let args = [&["-h", &sockets, "-U", "postgres", "-d", "postgres"], checks.as_slice()].concat();
        self.run("pg_amcheck", &args).context("pg_amcheck found corruption").map(drop)
    }

    /// `pg_checksums` of every page of the stopped cluster.
    pub(crate) fn check_pages(&self) -> Result<String> {
        let said = self
            .run("pg_checksums", &["-c", "-D", &text(&self.data)])
            .context("pg_checksums found corruption")?;
        let blocks = said.lines().find_map(|line| line.strip_prefix("Blocks scanned:")).unwrap_or("?");
        Ok(blocks.trim().to_owned())
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let program = text(&self.programs.join(program));
        run(&[&["setpriv"], AS_POSTGRES.as_slice(), &["--", &program], args].concat())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Connects, and drives the connection on the runtime.
pub(crate) async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The directory of the newest PostgreSQL's server programs, as Debian installs them.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is not installed")?;
    let versions = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let newest = versions.max().context("PostgreSQL is not installed: /usr/lib/postgresql is empty")?;
    Ok(PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin")))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
