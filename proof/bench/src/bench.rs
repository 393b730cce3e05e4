//! The targets with their files, and one run of one of them.
//!
//! Every target has as many bytes of files as any other. Before each run the target's data is brought into the state
//! that the row asks for, the target is stopped, its files are read through and probed, and it is started for the run.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::files::{self, write_noise};
use crate::filler::Carry;
use crate::load::{self, Pattern, Spec};
use crate::long::{self, Parts};
use crate::matrix::{Before, Data, MIX, Row, Target, Work};
use crate::nbdkit::{self, Nbdkit};
use crate::process::free_port;
use crate::quoin::{Array, VOLUME, number};
use crate::sample::{Beside, Sample};
use crate::served::Served;
use crate::tgtd::{Store, Tgtd};
use crate::{drive, proc};

/// RAM that Quoin may take in rows whose reads are to come from the drive, and in all others.
const MEMORY_BYTES: [u64; 2] = [384 << 20, 2 << 30];
/// Load before every measurement: what is touched for the first time costs a virtual machine dear.
const WARM_SECONDS: f64 = 2.0;
/// How long a write row may be warmed up until what it writes is destaged as it comes.
const SETTLE_SECONDS: f64 = 60.0;
/// How long a pool may be overwritten until it has wrapped.
const WRAP_SECONDS: f64 = 300.0;
/// How many times its log must have gone through all segments to count as wrapped, so that the cleaner is at work.
const WRAPS: u64 = 2;
/// How much at a time, before it is asked again whether it has.
const WRAP_STEP_SECONDS: f64 = 5.0;
/// The part of the data that is written as a log beside a backup, which takes the rest.
const LOG_SHARE: u64 = 8;
const BACKUP_IO_BYTES: u64 = 1 << 20;
const BACKUP_DEPTH: usize = 4;

/// How large and how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Bytes of files for each target.
    pub(crate) file_bytes: u64,
    /// Bytes of data that rows work on.
    pub(crate) data_bytes: u64,
    /// The same in rows that read from cache.
    pub(crate) cached_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) long_seconds: f64,
    /// How long a volume is overwritten to age it.
    pub(crate) age_seconds: f64,
    pub(crate) probe_seconds: f64,
    /// Whether runs that write count only if destage takes part.
    pub(crate) settles: bool,
}

/// The state of a target's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Laid {
    Nothing,
    InOrder,
    AtRandom,
    Aged,
}

impl Laid {
    /// What it is after a row has run on it.
    fn after(self, row: &Row) -> Laid {
        match (row.writes(), row.is_random(), self) {
            (true, true, Laid::InOrder) => Laid::AtRandom,
            (true, false, Laid::Aged) => Laid::AtRandom,
            (_, _, laid) => laid,
        }
    }
}

/// An array and what is known of it.
struct Own {
    array: Array,
    laid: Laid,
    /// Bytes written to segments since it was made, up to its last stop.
    placed_bytes: Cell<u64>,
    /// Bytes that its segments hold.
    capacity_bytes: u64,
}

/// The targets of one comparison.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    dir: tempfile::TempDir,
    own: BTreeMap<Target, Own>,
    /// The files of all other targets; tgtd's stores share one.
    other: BTreeMap<Target, (PathBuf, Laid)>,
    /// Commands by who ran them.
    commands: RefCell<BTreeMap<String, Vec<String>>>,
}

/// Whose files a target uses.
fn owner(target: Target) -> Target {
    match target {
        Target::Tgtd(_) => Target::Tgtd(Store::RDWR),
        other => other,
    }
}

impl Bench {
    /// Writes the files of all these targets to a directory in `dir`, and makes Quoin's volume.
    pub(crate) fn prepare(
        plan: Plan,
        dir: &std::path::Path,
        targets: impl IntoIterator<Item = Target>,
        make: impl Fn(&std::path::Path, u64) -> Result<Array>,
    ) -> Result<Bench> {
        let dir = tempfile::Builder::new()
            .prefix("quoin-bench-")
            .tempdir_in(dir)
            .with_context(|| format!("cannot make a directory in {}", dir.display()))?;
        let (own, other, commands) = (BTreeMap::new(), BTreeMap::new(), RefCell::default());
        let mut bench = Bench { plan, dir, own, other, commands };
        for target in targets.into_iter().map(owner) {
            if bench.own.contains_key(&target) || bench.other.contains_key(&target) {
                continue;
            }
            eprintln!("writing {} for {}", crate::units::show_bytes(plan.file_bytes), target.name());
            match target {
                Target::Quoin | Target::Fresh => {
                    let place =
                        bench.dir.path().join(if target == Target::Quoin { "quoin" } else { "fresh" });
                    std::fs::create_dir(&place)?;
                    let array = make(&place, plan.file_bytes)?;
                    let own =
                        Own { array, laid: Laid::Nothing, placed_bytes: Cell::new(0), capacity_bytes: 0 };
                    bench.own.insert(target, own);
                    bench.set_up(target)?;
                }
                Target::Tgtd(_) | Target::Nbdkit | Target::Bare => {
                    let name = ["bare.img", "tgtd.img", "nbdkit.img"];
                    let name = name[match target {
                        Target::Tgtd(_) => 1,
                        Target::Nbdkit => 2,
                        _ => 0,
                    }];
                    let file = bench.dir.path().join(name);
                    write_noise(&file, plan.file_bytes)
                        .with_context(|| format!("cannot write {}", file.display()))?;
                    bench.other.insert(target, (file, Laid::InOrder));
                }
            }
        }
        Ok(bench)
    }

    /// The array that keeps its pool, if it is measured.
    pub(crate) fn array(&self) -> Option<&Array> {
        self.own.get(&Target::Quoin).or_else(|| self.own.get(&Target::Fresh)).map(|own| &own.array)
    }

    pub(crate) fn into_commands(self) -> BTreeMap<String, Vec<String>> {
        self.commands.into_inner()
    }

    /// Makes the volume of an array that has none, and shows it over iSCSI and NBD.
    fn set_up(&mut self, target: Target) -> Result<()> {
        let own = self.own.get_mut(&target).context("there is no such array")?;
        let serving = own.array.serve()?;
        let mut commands = own.array.commands.clone();
        commands.append(&mut serving.map_volume(self.plan.data_bytes)?);
        commands.push(serving.export(VOLUME)?);
        own.capacity_bytes = number(&serving.status()?, "/capacity/total_bytes")?;
        own.laid = Laid::Nothing;
        own.placed_bytes.set(serving.engine()?.placed_bytes());
        drop(serving);
        self.commands.get_mut().entry(target.name()).or_insert(commands);
        Ok(())
    }

    /// One run of one target.
    pub(crate) fn measure(&mut self, row: &Row, target: Target) -> Result<Sample> {
        self.bring_about(row, target).context("while its data was prepared")?;
        let (through, probes) = self.check_files(row, target)?;
        let sample = match target {
            Target::Bare => self.bare(row)?,
            _ => self.run(row, target)?,
        };
        Ok(Sample { read_through_mb_per_second: through, probes_mb_per_second: probes, ..sample })
    }

    /// Brings the target's data into the state that the row asks for.
    fn bring_about(&mut self, row: &Row, target: Target) -> Result<()> {
        if target == Target::Fresh {
            self.own.get_mut(&target).context("there is no such array")?.array.format()?;
            self.set_up(target)?;
        }
        let laid = self.laid(target);
        if laid == Laid::Nothing
            || row.before == Before::InOrder && laid != Laid::InOrder
            || row.before == Before::Aged && !matches!(laid, Laid::InOrder | Laid::Aged)
        {
            self.overwrite(target, None)?;
            self.set_laid(target, Laid::InOrder);
        }
        if row.before == Before::Aged && self.laid(target) != Laid::Aged {
            self.overwrite(target, Some(self.plan.age_seconds))?;
            self.set_laid(target, Laid::Aged);
        }
        if row.before == Before::Wrapped && target == Target::Quoin {
            let mut spent = 0.0;
            while self.own.get(&target).is_some_and(|own| own.placed_bytes.get() < WRAPS * own.capacity_bytes)
            {
                ensure!(spent < WRAP_SECONDS, "its log did not wrap {WRAPS} times within {WRAP_SECONDS} s");
                self.overwrite(target, Some(WRAP_STEP_SECONDS))?;
                spent += WRAP_STEP_SECONDS;
                self.set_laid(target, Laid::AtRandom);
            }
        }
        Ok(())
    }

    fn laid(&self, target: Target) -> Laid {
        let own = self.own.get(&target).map(|own| own.laid);
        own.or_else(|| self.other.get(&owner(target)).map(|(_, laid)| *laid)).unwrap_or(Laid::Nothing)
    }

    fn set_laid(&mut self, target: Target, laid: Laid) {
        if let Some(own) = self.own.get_mut(&target) {
            own.laid = laid;
        } else if let Some((_, of_file)) = self.other.get_mut(&owner(target)) {
            *of_file = laid;
        }
    }

    /// Writes all of the target's data in sequence, or for so many seconds at random.
    fn overwrite(&mut self, target: Target, at_random_seconds: Option<f64>) -> Result<()> {
        if target == Target::Bare || target == Target::Nbdkit {
            return Ok(()); // written in place: where its data lies never changes
        }
        let store = Store::RDWR_SYNC_DIRECT;
        let target = if matches!(target, Target::Tgtd(_)) { Target::Tgtd(store) } else { target };
        let served = self.start(target, MEMORY_BYTES[1], false)?;
        let spec = self.spec(&served)?;
        load::run(&match at_random_seconds {
            Some(seconds) => Spec { rw: Pattern::Randwrite, seconds, ..spec },
            // There is no load without a run: a moment of reads does no harm.
            None => Spec { rw: Pattern::Randread, seconds: 0.1, fill: true, ..spec },
        })?;
        self.stop(target, served)
    }

    /// Reads the target's files through and probes each; returns the slowest reading and all probes, in MB/s.
    fn check_files(&self, row: &Row, target: Target) -> Result<(f64, Vec<f64>)> {
        let files = match self.own.get(&target) {
            Some(own) => own.array.drives().to_vec(),
            None => self.other.get(&owner(target)).map(|(file, _)| file.clone()).into_iter().collect(),
        };
        let through = files.iter().map(|file| files::read_through(file)).collect::<Result<Vec<_>>>()?;
        let probe = |file: &PathBuf| files::probe(file, row.probe(), self.plan.probe_seconds);
        let probes = files.iter().map(probe).collect::<Result<Vec<_>>>()?;
        Ok((through.into_iter().fold(f64::INFINITY, f64::min), probes))
    }

    fn bare(&self, row: &Row) -> Result<Sample> {
        let (file, _) = self.other.get(&Target::Bare).context("the bare drive has no file")?;
        let command = drive::command(row.bare(), file, self.plan.data_bytes, self.plan.seconds);
        self.remember(format!("{}, {}", Target::Bare.name(), row.id), vec![crate::process::line(&command)]);
        Ok(Sample::of_fio(&drive::measure(command)?))
    }

    fn run(&mut self, row: &Row, target: Target) -> Result<Sample> {
        let from_drive = !row.writes() && row.data == Data::Drive;
        let served = self.start(target, MEMORY_BYTES[usize::from(!from_drive)], row.work == Work::Nbd)?;
        let settled = self.warm_up(row, &served)?;
        let before = served.engine()?;
        let mut sample = match row.work {
            Work::Load | Work::Nbd => self.once(row, &served, self.plan.seconds)?,
            Work::Long => self.long(row, target, &served)?,
            Work::Beside => self.beside(row, &served)?,
        };
        if let Some((before, after)) = before.zip(served.engine()?) {
            let work = after.since(&before);
            sample = sample.with_engine(&work);
            if row.writes() && self.plan.settles && !(settled && work.is_settled()) {
                let why = "less than a quarter of what was written was destaged during the run";
                sample.invalid.get_or_insert(why.to_owned());
            }
        }
        self.stop(target, served)?;
        self.set_laid(target, self.laid(target).after(row));
        Ok(sample)
    }

    /// Load that is not counted. Of Quoin, where it writes, for as long as it takes until the engine destages what comes
    /// in; false if it never did.
    fn warm_up(&self, row: &Row, served: &Served<'_>) -> Result<bool> {
        let mut spent = 0.0;
        loop {
            let before = served.engine()?;
            let seconds = WARM_SECONDS.min(self.plan.seconds);
            match row.work {
                Work::Beside => drop(self.two_at_once(row, served, seconds)?),
                _ => drop(self.once(row, served, seconds)?),
            }
            spent += seconds;
            let settled = !row.writes()
                || !self.plan.settles
                || before
                    .zip(served.engine()?)
                    .is_none_or(|(before, after)| after.since(&before).is_settled());
            if settled || spent >= SETTLE_SECONDS {
                return Ok(settled);
            }
        }
    }

    fn once(&self, row: &Row, served: &Served<'_>, seconds: f64) -> Result<Sample> {
        if row.work == Work::Nbd {
            let command = nbdkit::fio(row, self.dir.path(), served.nbd()?, self.plan.data_bytes, seconds);
            let before = proc::usage(served.pid())?;
            let drive = drive::measure(command)?;
            let after = proc::usage(served.pid())?;
            let (ios, bytes) = (drive.iops * seconds, drive.mb_per_second * 1e6 * seconds);
            let each = |after: u64, before: u64| Some((after - before) as f64 / bytes.max(1.0));
            let sample = Sample {
                drive_read: each(after.read_bytes, before.read_bytes),
                drive_written: each(after.write_bytes, before.write_bytes),
                ..Sample::of_fio(&drive)
            };
            return Ok(sample.with_cpu((after.cpu_seconds - before.cpu_seconds) * 1e6 / ios.max(1.0)));
        }
        Ok(Sample::of_report(&load::run(&self.spec_of(row, served, seconds)?)?))
    }

    fn long(&self, row: &Row, target: Target, served: &Served<'_>) -> Result<Sample> {
        let seconds = self.plan.long_seconds;
        let (Served::Quoin { serving, .. }, Some(own)) = (served, self.own.get(&target)) else {
            return self.once(row, served, seconds);
        };
        let (sample, moments) = long::watch(serving, || self.once(row, served, seconds))?;
        Ok(match Parts::of(&moments, own.capacity_bytes, own.placed_bytes.get()) {
            Ok(parts) => Sample { parts: Some(parts), ..sample },
            Err(why) => Sample { invalid: Some(why), ..sample },
        })
    }

    fn beside(&self, row: &Row, served: &Served<'_>) -> Result<Sample> {
        let seconds = self.plan.seconds;
        let alone = load::run(&self.spec_of(row, served, seconds)?)?;
        let (log, stream) = self.two_at_once(row, served, seconds)?;
        let bytes = |report: &load::Report| (report.total.ios * report.block_bytes) as f64;
        let all = bytes(&log) + bytes(&stream);
        let target = log.target.context("the target's CPU was not measured")?;
        Ok(Sample {
            cpu_us_per_mib: target.cpu.seconds * 1e6 / (all / f64::from(1 << 20)).max(1e-9),
            drive_read: Some(target.storage_read_bytes as f64 / all.max(1.0)),
            drive_written: Some(target.storage_write_bytes as f64 / all.max(1.0)),
            beside: Some(Beside {
                alone_iops: alone.total.iops,
                alone_p99_us: alone.total.latency_us.p99,
                stream_mb_per_second: stream.total.mb_per_second,
            }),
            ..Sample::of_report(&log)
        })
    }

    /// The row's load and a backup, at once.
    fn two_at_once(
        &self,
        row: &Row,
        served: &Served<'_>,
        seconds: f64,
    ) -> Result<(load::Report, load::Report)> {
        let log = self.spec_of(row, served, seconds)?;
        let first = log.working_set.unwrap_or(0).next_multiple_of(BACKUP_IO_BYTES);
        let backup = Spec {
            rw: Pattern::Write,
            bs: BACKUP_IO_BYTES,
            depth: BACKUP_DEPTH,
            session: log.sessions,
            first,
            working_set: Some(self.plan.data_bytes - first),
            ..log.clone()
        };
        std::thread::scope(|scope| {
            let stream = scope.spawn(|| load::run(&backup));
            let log = load::run(&log);
            let stream = stream.join().expect("the backup panicked");
            Ok((log?, stream.context("the backup")?))
        })
    }

    fn start(&self, target: Target, memory_bytes: u64, nbd: bool) -> Result<Served<'_>> {
        let served = match (target, self.own.get(&target), self.other.get(&owner(target))) {
            (_, Some(own), _) => {
                let nbd = nbd.then(free_port).transpose()?;
                Served::Quoin { serving: own.array.serve_to(Some(memory_bytes), nbd)?, nbd }
            }
            (Target::Tgtd(store), _, Some((file, _))) => {
                Served::Tgtd(Tgtd::start(self.dir.path(), file, store)?)
            }
            (Target::Nbdkit, _, Some((file, _))) => Served::Nbdkit(Nbdkit::start(self.dir.path(), file)?),
            _ => anyhow::bail!("{} cannot be started", target.name()),
        };
        if !self.own.contains_key(&target) {
            self.remember(target.name(), served.commands());
        }
        Ok(served)
    }

    /// Ends the target's run, and keeps what its segments took meanwhile.
    fn stop(&self, target: Target, served: Served<'_>) -> Result<()> {
        if let Some((engine, own)) = served.engine()?.zip(self.own.get(&target)) {
            own.placed_bytes.set(own.placed_bytes.get() + engine.placed_bytes());
        }
        Ok(())
    }

    fn spec_of(&self, row: &Row, served: &Served<'_>, seconds: f64) -> Result<Spec> {
        let cached = row.data == Data::Cached;
        let set = match row.work {
            _ if cached => self.plan.cached_bytes,
            Work::Beside => self.plan.data_bytes / LOG_SHARE,
            _ => self.plan.data_bytes,
        };
        Ok(Spec {
            rw: row.pattern,
            bs: row.io_bytes,
            depth: row.depth,
            seconds,
            sessions: row.sessions,
            working_set: Some(set),
            preread: cached,
            ..self.spec(served)?
        })
    }

    /// Random transfers of 8 KiB at depth 32 on all of the data.
    fn spec(&self, served: &Served<'_>) -> Result<Spec> {
        Ok(Spec {
            at: served.at()?,
            rw: Pattern::Randread,
            bs: 8 << 10,
            depth: 32,
            mix: MIX,
            rate: None,
            seconds: self.plan.seconds,
            warmup: 0.2,
            sessions: 1,
            working_set: Some(self.plan.data_bytes),
            fill: false,
            preread: false,
            verify: false,
            carry: Carry::Stamps,
            ledger: None,
            fua: false,
            seed: 1,
            session: 0,
            first: 0,
            target_pid: Some(served.pid()),
        })
    }

    /// Keeps the commands of who has none yet: those of later starts differ in ports only.
    fn remember(&self, who: String, commands: Vec<String>) {
        self.commands.borrow_mut().entry(who).or_insert(commands);
    }
}
