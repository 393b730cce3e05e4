//! The load: clients that insert, update and delete, and keep a ledger of what was acknowledged.

use crate::{
    ledger::{Change, Key, Ledger, Settled, Sum, Window},
    postgres::connect,
};
use anyhow::{Context, Result, anyhow, bail, ensure};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Runtime, task::JoinHandle};
use tokio_postgres::{Client, Config, GenericClient, Statement};

const SCHEMA: &str = "
    CREATE TABLE entry (id bigint PRIMARY KEY, client int NOT NULL, sum bigint NOT NULL, body bytea NOT NULL);
    CREATE INDEX entry_sum ON entry (sum);
    CREATE TABLE counter (id bigint PRIMARY KEY, client int NOT NULL, value bigint NOT NULL, note text NOT NULL);
";
const COUNTERS_PER_CLIENT: i64 = 8;
/// A client deletes more than it inserts above this many rows.
const ROWS_PER_CLIENT: usize = 3000;
/// Ids of a client's rows are these times its number, and up.
const IDS_PER_CLIENT: i64 = 1 << 40;
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
const STOP_LIMIT: Duration = Duration::from_secs(90);

/// Figures of the running load.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) commits: AtomicU64,
    first_error: Mutex<Option<String>>,
    stopping: AtomicBool,
}

/// Clients between two stops of the load. Each is a state that survives from one round to the next.
#[derive(Debug)]
pub(crate) struct Load {
    clients: Vec<Worker>,
}

/// What a comparison of ledgers and database found; errors are reported apart.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    pub(crate) rows: usize,
    pub(crate) commits: u64,
    pub(crate) doubts_committed: u32,
    pub(crate) doubts_absent: u32,
}

/// A load in progress.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) figures: Arc<Figures>,
    tasks: Vec<JoinHandle<Worker>>,
    ledgers: BTreeMap<i32, Arc<Mutex<Ledger>>>,
}

/// What each client's rows may be in a snapshot.
pub(crate) type Windows = BTreeMap<i32, Window>;

impl Running {
    /// An error if any client saw one in this round.
    pub(crate) fn without_errors(&self) -> Result<()> {
        match self.figures.first_error.lock().ok().and_then(|error| error.clone()) {
            None => Ok(()),
            Some(error) => bail!("the database must work, and keep working, but {error}"),
        }
    }

    /// A snapshot is about to be taken of what the clients work on.
    pub(crate) fn open_windows(&self) {
        self.ledgers.values().for_each(|ledger| lock(ledger).open_window());
    }

    /// The snapshot was taken. What it may hold of each client:
    pub(crate) fn close_windows(&self) -> Windows {
        self.ledgers.iter().map(|(number, ledger)| (*number, lock(ledger).close_window())).collect()
    }
}

#[derive(Debug)]
struct Worker {
    number: i32,
    rng: ChaCha8Rng,
    ledger: Arc<Mutex<Ledger>>,
    next_id: i64,
}

impl Load {
    /// Makes the tables, and clients that have not done anything yet.
    pub(crate) fn create(runtime: &Runtime, config: &Config, clients: i32, seed: u64) -> Result<Self> {
        runtime.block_on(async {
            connect(config).await?.batch_execute(SCHEMA).await.context("making the tables")
        })?;
        let worker = |number: i32| Worker {
            number,
            rng: ChaCha8Rng::seed_from_u64(seed ^ (u64::from(number.unsigned_abs()) << 32)),
            ledger: Arc::default(),
            next_id: i64::from(number) * IDS_PER_CLIENT,
        };
        Ok(Self { clients: (1..=clients).map(worker).collect() })
    }

    /// Sets the clients to work.
    pub(crate) fn start(&mut self, runtime: &Runtime, config: &Config) -> Running {
        let figures = Arc::new(Figures::default());
        let ledgers = self.clients.iter().map(|client| (client.number, client.ledger.clone())).collect();
        let tasks = self.clients.drain(..);
        let tasks = tasks.map(|client| runtime.spawn(client.work(config.clone(), figures.clone()))).collect();
        Running { figures, tasks, ledgers }
    }

    /// Lets the clients finish their transactions, or fail.
    pub(crate) fn stop(&mut self, runtime: &Runtime, running: Running) -> Result<()> {
        running.figures.stopping.store(true, Ordering::Relaxed);
        for task in running.tasks {
            let ended = runtime.block_on(async { tokio::time::timeout(STOP_LIMIT, task).await });
            self.clients.push(ended.context("a client hangs in a statement that never ends")??);
        }
        Ok(())
    }

    /// Reads every row from the database and compares with every client's ledger.
    pub(crate) fn verify(&mut self, runtime: &Runtime, config: &Config) -> Result<Verified> {
        let mut found = runtime.block_on(async { rows(&connect(config).await?).await })?;
        let mut verified = Verified::default();
        for client in &mut self.clients {
            let found = found.remove(&client.number).unwrap_or_default();
            let mut ledger = lock(&client.ledger);
            let settled =
                ledger.settle(&found).map_err(|what| anyhow!("client {}: {what}", client.number))?;
            verified.rows += found.len();
            verified.commits += ledger.commits;
            verified.doubts_committed += u32::from(settled == Settled::Committed);
            verified.doubts_absent += u32::from(settled == Settled::Absent);
        }
        ensure!(found.is_empty(), "the database has rows of clients that do not exist: {:?}", found.keys());
        Ok(verified)
    }

    /// What each client's rows are while none of them works.
    pub(crate) fn present(&self) -> Windows {
        let ledgers = self.clients.iter().map(|client| (client.number, lock(&client.ledger)));
        ledgers
            .map(|(number, mut ledger)| {
                ledger.open_window();
                (number, ledger.close_window())
            })
            .collect()
    }

    /// The database was taken back to the state of a snapshot: finds which it is, and goes on from there.
    pub(crate) fn taken_back(&mut self, runtime: &Runtime, config: &Config, to: &Windows) -> Result<Found> {
        let (found, states) = find(runtime, config, to)?;
        for client in &mut self.clients {
            let state = states.get(&client.number).cloned().unwrap_or_default();
            lock(&client.ledger).taken_back_to(state);
        }
        Ok(found)
    }
}

/// What a database that came of a snapshot holds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) rows: usize,
    /// Commits it has beyond those that were acknowledged before it was begun, of those sent until it was done.
    pub(crate) later: usize,
    pub(crate) sent: usize,
}

/// Compares a database with what a snapshot taken in these windows may hold.
pub(crate) fn verify_moment(runtime: &Runtime, config: &Config, windows: &Windows) -> Result<Found> {
    find(runtime, config, windows).map(|(found, _)| found)
}

type States = BTreeMap<i32, BTreeMap<Key, Sum>>;

fn find(runtime: &Runtime, config: &Config, windows: &Windows) -> Result<(Found, States)> {
    let mut rows = runtime.block_on(async { rows(&connect(config).await?).await })?;
    let (mut found, mut states) = (Found::default(), States::new());
    for (number, window) in windows {
        let there = rows.remove(number).unwrap_or_default();
        let (state, later) = window.find(&there).map_err(|what| anyhow!("client {number}: {what}"))?;
        found.rows += state.len();
        found.later += later;
        found.sent += window.sent();
        states.insert(*number, state);
    }
    ensure!(rows.is_empty(), "the database has rows of clients that do not exist: {:?}", rows.keys());
    Ok((found, states))
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().expect("nobody panics with a ledger in hand")
}

/// All rows by client; the body of each is checked against its checksum.
async fn rows(client: &Client) -> Result<BTreeMap<i32, BTreeMap<Key, Sum>>> {
    let mut found: BTreeMap<i32, BTreeMap<Key, Sum>> = BTreeMap::new();
    client.batch_execute("BEGIN; DECLARE walk CURSOR FOR SELECT client, id, sum, body FROM entry").await?;
    loop {
        let batch = client.query("FETCH 500 FROM walk", &[]).await?;
        for row in &batch {
            let (id, sum): (i64, Sum) = (row.get(1), row.get(2));
            let there = checksum(row.get(3));
            ensure!(there == sum, "entry {id} holds a body of checksum {there:x}, its row says {sum:x}");
            let twice = found.entry(row.get(0)).or_default().insert(Key::Entry(id), sum);
            ensure!(twice.is_none(), "entry {id} is there twice");
        }
        if batch.is_empty() {
            break;
        }
    }
    for row in client.query("SELECT client, id, value FROM counter", &[]).await? {
        found.entry(row.get(0)).or_default().insert(Key::Counter(row.get(1)), row.get(2));
    }
    client.batch_execute("COMMIT").await?;
    Ok(found)
}

struct Statements {
    insert: Statement,
    update: Statement,
    delete: Statement,
    count: Statement,
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            insert: client.prepare("INSERT INTO entry VALUES ($1, $2, $3, $4)").await?,
            update: client
                .prepare("UPDATE entry SET sum = $3, body = $4 WHERE id = $1 AND client = $2")
                .await?,
            delete: client.prepare("DELETE FROM entry WHERE id = $1 AND client = $2").await?,
            count: client
                .prepare(
                    "INSERT INTO counter VALUES ($1, $2, $3, repeat('x', $4))
                     ON CONFLICT (id) DO UPDATE SET value = excluded.value, note = excluded.note",
                )
                .await?,
        })
    }
}

/// One statement of a transaction, with what it will have done.
struct Step {
    change: Change,
    body: Option<Vec<u8>>,
    is_new: bool,
}

impl Worker {
    /// Works until told to stop, or until a commit is in doubt. Reconnects after other errors.
    async fn work(mut self, config: Config, figures: Arc<Figures>) -> Self {
        while !figures.stopping.load(Ordering::Relaxed) && !lock(&self.ledger).in_doubt() {
            if let Err(error) = self.session(&config, &figures).await {
                if let Ok(mut first) = figures.first_error.lock() {
                    first.get_or_insert_with(|| format!("client {}: {error:?}", self.number));
                }
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        }
        self
    }

    async fn session(&mut self, config: &Config, figures: &Figures) -> Result<()> {
        let mut client = connect(config).await?;
        let statements = Statements::prepare(&client).await?;
        while !figures.stopping.load(Ordering::Relaxed) {
            match self.rng.random_range(0..100) {
                0..2 => self.rolled_back(&mut client, &statements).await?,
                2..14 => {
                    let steps = vec![self.insertion(), self.insertion(), self.count(), self.deletion()];
                    self.transaction(&mut client, &statements, steps).await?;
                    figures.commits.fetch_add(1, Ordering::Relaxed);
                }
                other => {
                    let step = match other {
                        14..50 => self.insertion(),
                        50..75 => self.count(),
                        75..88 => self.update(),
                        _ => self.deletion(),
                    };
                    lock(&self.ledger).sending(vec![step.change]);
                    let done = self.execute(&client, &statements, &step).await;
                    self.record(done.map_err(anyhow::Error::from))?;
                    figures.commits.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    async fn transaction(
        &mut self,
        client: &mut Client,
        statements: &Statements,
        steps: Vec<Step>,
    ) -> Result<()> {
        let transaction = client.transaction().await?;
        for step in &steps {
            self.execute(&transaction, statements, step).await?;
        }
        lock(&self.ledger).sending(steps.iter().map(|step| step.change).collect());
        let committed = transaction.commit().await;
        self.record(committed.map_err(anyhow::Error::from))
    }

    /// A transaction that must leave no trace.
    async fn rolled_back(&mut self, client: &mut Client, statements: &Statements) -> Result<()> {
        let transaction = client.transaction().await?;
        let (insertion, deletion) = (self.insertion(), self.deletion());
        self.execute(&transaction, statements, &insertion).await?;
        self.execute(&transaction, statements, &deletion).await?;
        Ok(transaction.rollback().await?)
    }

    fn record(&mut self, committed: Result<()>) -> Result<()> {
        match &committed {
            Ok(()) => lock(&self.ledger).acknowledged(),
            // A refusal that is not about the server's end is a definite no.
            Err(error) if is_refusal(error) => lock(&self.ledger).refused(),
            Err(_) => {}
        }
        committed
    }

    async fn execute(
        &self,
        client: &impl GenericClient,
        s: &Statements,
        step: &Step,
    ) -> Result<(), tokio_postgres::Error> {
        let (number, body) = (self.number, step.body.as_deref());
        match (step.change.key, step.change.to) {
            (Key::Entry(id), Some(sum)) if step.is_new => {
                client.execute(&s.insert, &[&id, &number, &sum, &body]).await?
            }
            (Key::Entry(id), Some(sum)) => client.execute(&s.update, &[&id, &number, &sum, &body]).await?,
            (Key::Entry(id), None) => client.execute(&s.delete, &[&id, &number]).await?,
            (Key::Counter(id), value) => {
                let width = value.unwrap_or(0) as i32 % 50;
                client.execute(&s.count, &[&id, &number, &value, &width]).await?
            }
        };
        Ok(())
    }

    fn insertion(&mut self) -> Step {
        self.next_id += 1;
        self.entry(self.next_id, true)
    }

    fn update(&mut self) -> Step {
        match self.some_entry() {
            Some(id) => self.entry(id, false),
            None => self.insertion(),
        }
    }

    fn deletion(&mut self) -> Step {
        match self.some_entry() {
            Some(id) => Step { change: Change { key: Key::Entry(id), to: None }, body: None, is_new: false },
            None => self.insertion(),
        }
    }

    fn count(&mut self) -> Step {
        let id = i64::from(self.number) * IDS_PER_CLIENT + self.rng.random_range(0..COUNTERS_PER_CLIENT);
        let value = lock(&self.ledger).rows().get(&Key::Counter(id)).copied().unwrap_or(0) + 1;
        Step { change: Change { key: Key::Counter(id), to: Some(value) }, body: None, is_new: false }
    }

    fn entry(&mut self, id: i64, is_new: bool) -> Step {
        let body = body(&mut self.rng);
        Step { change: Change { key: Key::Entry(id), to: Some(checksum(&body)) }, body: Some(body), is_new }
    }

    fn some_entry(&mut self) -> Option<i64> {
        let at = self.rng.random_range(0..ROWS_PER_CLIENT);
        let ledger = lock(&self.ledger);
        let entries = ledger.rows().range(Key::Entry(0)..Key::Entry(i64::MAX));
        entries.map(|(key, _)| key).nth(at).map(|key| match key {
            Key::Entry(id) | Key::Counter(id) => *id,
        })
    }
}

/// Random bytes, in part compressible: mostly small, sometimes big enough for TOAST.
fn body(rng: &mut impl Rng) -> Vec<u8> {
    let len = if rng.random_bool(0.15) { rng.random_range(4_000..60_000) } else { rng.random_range(40..800) };
    let mut body = vec![0; len];
    let noise = rng.random_range(16..=len);
    rng.fill_bytes(&mut body[..noise]);
    body
}

fn checksum(body: &[u8]) -> Sum {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, body).cast_signed()
}

/// Whether the server said no to a statement, as opposed to going away while it was at it.
fn is_refusal(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::as_db_error);
    // Class 57 is operator intervention: shutdowns and crashes. PANIC ends the server, too.
    error.is_some_and(|error| !error.code().code().starts_with("57") && error.severity() == "ERROR")
}
