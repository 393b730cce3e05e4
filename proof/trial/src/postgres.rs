//! A PostgreSQL cluster on the volume: reached over a Unix socket only, run as the user `postgres`.

use crate::process::{Process, children, is_running, run, wait_until};
use anyhow::{Context, Result, ensure};
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
/// Options of `setpriv` to become the user `postgres`.
pub(crate) const AS_POSTGRES: [&str; 3] = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
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

/// The tablespace, of a cluster that has one.
const TABLESPACE: &str = "far";

/// Where the parts of a cluster lie: directories of a mounted file system each.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) data: PathBuf,
    /// With the data if not given.
    pub(crate) log: Option<PathBuf>,
    /// None if not given.
    pub(crate) tablespace: Option<PathBuf>,
}

impl Places {
    /// All in one file system.
    pub(crate) fn alone(mountpoint: &Path) -> Self {
        Self { data: mountpoint.join("pg"), log: None, tablespace: None }
    }

    /// The log in a file system of its own.
    pub(crate) fn data_and_log(data: &Path, log: &Path) -> Self {
        Self { data: data.join("pg"), log: Some(log.join("pg")), tablespace: None }
    }

    /// Each part in a file system of its own.
    pub(crate) fn apart(data: &Path, log: &Path, tablespace: &Path) -> Self {
        let place = |mountpoint: &Path| Some(mountpoint.join("pg"));
        Self { data: data.join("pg"), log: place(log), tablespace: place(tablespace) }
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.data].into_iter().chain(&self.log).chain(&self.tablespace)
    }
}

/// A cluster and its server.
#[derive(Debug)]
pub(crate) struct Postgres {
    programs: PathBuf,
    places: Places,
    sockets: PathBuf,
    log: PathBuf,
    server: Option<Process>,
    dying: Vec<Pid>,
}

impl Postgres {
    /// Makes a cluster with data checksums in these places; it is not started.
    pub(crate) fn create(work: &Path, places: Places) -> Result<Self> {
        let postgres = Self::at(work, places)?;
        for place in postgres.places.all() {
            readable(place.parent().context("a place in a file system")?)?;
            std::fs::DirBuilder::new().mode(0o700).create(place)?;
            run(&["chown", "postgres:", &text(place)])?;
        }
        let data = text(&postgres.places.data);
        let log = postgres.places.log.as_ref().map(|log| text(log));
        let apart = log.as_ref().map_or(vec![], |log| vec!["--waldir", log.as_str()]);
        let how = ["-D", &data, "-k", "-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8"];
        postgres.run("initdb", &[&how[..], &apart].concat())?;
        let configuration = postgres.places.data.join("postgresql.conf");
        let defaults = std::fs::read_to_string(&configuration)?;
        std::fs::write(&configuration, defaults + SETTINGS)?;
        Ok(postgres)
    }

    /// The cluster that a crash-consistent copy of another one's file systems holds, mounted elsewhere: what leads
    /// from one file system to another is made to lead to these places, and nothing else is changed.
    pub(crate) fn of_copy(work: &Path, places: Places) -> Result<Self> {
        let postgres = Self::at(work, places)?;
        let lead = |link: &Path, to: &Path| {
            std::fs::remove_file(link).with_context(|| format!("{} of the copy", link.display()))?;
            std::os::unix::fs::symlink(to, link).with_context(|| format!("making {}", link.display()))
        };
        let data = &postgres.places.data;
        if let Some(log) = &postgres.places.log {
            lead(&data.join("pg_wal"), log)?;
        }
        if let Some(tablespace) = &postgres.places.tablespace {
            for link in std::fs::read_dir(data.join("pg_tblspc"))? {
                lead(&link?.path(), tablespace)?;
            }
        }
        // The process it names is the other cluster's server, which lives.
        std::fs::remove_file(data.join("postmaster.pid")).context("the copy was not of a running server")?;
        Ok(postgres)
    }

    fn at(work: &Path, places: Places) -> Result<Self> {
        let (sockets, log) = (work.join("pg"), work.join("postgres.log"));
        readable(work)?;
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&sockets)?;
        run(&["chown", "postgres:", &text(&sockets)])?;
        Ok(Self { programs: programs()?, places, sockets, log, server: None, dying: Vec::new() })
    }

    /// Starts the server and returns the time until it answered: its crash recovery, if there was a crash.
    pub(crate) fn start(&mut self, runtime: &Runtime) -> Result<Duration> {
        let started = Instant::now();
        let program = text(&self.programs.join("postgres"));
        let args = [program.as_str(), "-D", &text(&self.places.data), "-k", &text(&self.sockets)];
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

    /// An error if the server of a copy works on files of the original: replay of the tablespace's creation would lead
    /// there again.
    pub(crate) fn is_apart(&self) -> Result<()> {
        for link in std::fs::read_dir(self.places.data.join("pg_tblspc"))? {
            let (link, place) = (link?.path(), self.places.tablespace.as_ref());
            let leads_to = std::fs::read_link(&link)?;
            ensure!(Some(&leads_to) == place, "{} leads to {}", link.display(), leads_to.display());
        }
        Ok(())
    }

    /// Makes the tablespace and moves what clients write to there, all but the counters.
    pub(crate) fn spread(&self, runtime: &Runtime) -> Result<()> {
        let place = text(self.places.tablespace.as_ref().context("a place for the tablespace")?);
        let create = format!("CREATE TABLESPACE {TABLESPACE} LOCATION '{place}'");
        let moves = ["TABLE entry", "INDEX entry_sum", "INDEX entry_pkey"];
        let moves = moves.map(|what| format!("ALTER {what} SET TABLESPACE {TABLESPACE}"));
        runtime.block_on(async {
            let client = self.connect().await?;
            // With the checkpoint no copy that is taken later replays the creation, which names the place.
            for statement in [create].iter().chain(&moves).chain(&["CHECKPOINT".to_owned()]) {
                client.batch_execute(statement).await.with_context(|| statement.clone())?;
            }
            Ok(())
        })
    }

    /// Changes and deletes rows of the clients all over, for good.
    pub(crate) fn ravage(&self, runtime: &Runtime) -> Result<()> {
        let ravage = "DELETE FROM entry WHERE id % 2 = 0; UPDATE entry SET sum = -1, body = body || body;
            UPDATE counter SET value = -value, note = 'ravaged'; VACUUM; CHECKPOINT";
        runtime.block_on(async {
            let client = self.connect().await?;
            for statement in ravage.split(';') {
                client.batch_execute(statement).await.with_context(|| statement.to_owned())?;
            }
            Ok(())
        })
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
            .run("pg_checksums", &["-c", "-D", &text(&self.places.data)])
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

/// Lets the user `postgres` through.
fn readable(directory: &Path) -> Result<()> {
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory, mode).with_context(|| format!("opening up {}", directory.display()))
}

/// The directory of the newest PostgreSQL's server programs, as Debian installs them.
pub(crate) fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is not installed")?;
    let versions = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let newest = versions.max().context("PostgreSQL is not installed: /usr/lib/postgresql is empty")?;
    Ok(PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin")))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
