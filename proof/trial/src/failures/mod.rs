//! Short histories of failing drives on the array itself, without a database, over iSCSI.
//!
//! Each history makes an array of emulated drives with a layout that is drawn, and writes to its volumes all the time.
//! Meanwhile drives fail, are pulled, hang, slow down, rot, return, are taken out by hand and added, never more at a time than
//! the layout tolerates, volumes get other layouts, and the array is killed. No host may see an error. What each block has to be is known at all times
//! ([`crate::raw::chains`]); at the end everything is compared and the drives are checked.

mod act;
mod drives;

use crate::{
    array::{Array, Kind, Pool},
    process::{pause, wait_until},
    raw::{
        chains::{self, Chains, Content},
        stamp::{BLOCK_BYTES, write_of},
    },
};
use anyhow::{Context, Result, anyhow, ensure};
use drives::Drives;
use quoin_initiator::{Endpoint, Rng};
use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

const DRIVE_BYTES: u64 = 768 << 20;
/// Bytes of each volume.
const VOLUME_BYTES: usize = 12 << 20;
/// A drive that does not answer for so long has failed.
const SETTINGS: &str = "drive_suspect_s = 1\ndrive_fail_s = 1\n";
/// Layouts with the fault domains that they need.
const LAYOUTS: [(&str, u64); 6] =
    [("mirror", 2), ("mirror-3", 3), ("2+1", 3), ("raid5", 4), ("raid6", 6), ("3+2", 5)];
/// How long a rebuild of what a history writes may take.
const REBUILD_LIMIT: Duration = Duration::from_secs(120);

/// How much of it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Histories
    #[arg(long, default_value_t = 20)]
    histories: u64,
    /// Acts of each history, on average
    #[arg(long, default_value_t = 5)]
    acts: u64,
    /// Decides all, with the number of a history; drawn and printed if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The first history, to run one again
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The quoin binary; the one beside this program if not given
    #[arg(long)]
    pub(crate) quoin: Option<PathBuf>,
}

/// What was done, for the last line.
#[derive(Debug, Default)]
struct Done {
    acts: u32,
    kills: u32,
    writes: usize,
    blocks_compared: usize,
}

/// An array and what its volumes hold.
struct History {
    array: Array,
    drives: Drives,
    contents: Vec<Content>,
    /// Policies that were made, each named as its layout.
    policies: Vec<String>,
    rng: Rng,
    next_write: AtomicU64,
    commands: File,
    done: Done,
}

/// Runs all histories, each in a directory of its own, which goes when it ended well.
pub(crate) fn run(plan: &Plan, quoin: &Path, work: &Path, seed: u64) -> Result<()> {
    let (started, mut all) = (Instant::now(), Done::default());
    for number in plan.from..plan.from + plan.histories {
        let work = work.join(number.to_string());
        std::fs::create_dir(&work)?;
        let context = || format!("history {number}; its commands are in {}/commands.log", work.display());
        let rng = Rng::new(seed ^ number << 32);
        let mut history = History::create(quoin, &work, rng).with_context(context)?;
        let told = history.run(plan).with_context(context)?;
        let Done { acts, kills, writes, blocks_compared } = history.done;
        all.acts += acts;
        all.kills += kills;
        all.writes += writes;
        all.blocks_compared += blocks_compared;
        std::fs::remove_dir_all(&work)?;
        println!("[{:6.1} s] history {number}: {told}", started.elapsed().as_secs_f64());
    }
    let Done { acts, kills, writes, blocks_compared } = all;
    println!(
        "{} histories in {:.1} s: {acts} acts, {kills} kills, {writes} acknowledged writes, {blocks_compared} blocks \
         compared, no error and nothing lost",
        plan.histories,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

impl History {
    fn create(quoin: &Path, work: &Path, mut rng: Rng) -> Result<Self> {
        let (layout, domains) = LAYOUTS[rng.below(LAYOUTS.len() as u64) as usize];
        let drives = Drives::create(work, domains + rng.below(3), DRIVE_BYTES)?;
        let pool = Pool {
            drives: drives.paths(),
            slices: 1 + rng.below(2) as u8,
            layout: layout.to_owned(),
            emulate: Some("nvme".to_owned()),
            settings: SETTINGS.to_owned(),
        };
        let mut commands = File::create(work.join("commands.log"))?;
        writeln!(commands, "layout {layout}, {} drives, {} slices", pool.drives.len(), pool.slices)?;
        let array = Array::without_volumes(Kind::Quoin, quoin, work, pool)?;
        let contents = vec![vec![0; VOLUME_BYTES / BLOCK_BYTES]; 1 + rng.below(2) as usize];
        for volume in 0..contents.len() {
            array.add_volume(&format!("v{volume}"), VOLUME_BYTES as u64, volume as u32)?;
        }
        let (next_write, done) = (AtomicU64::new(1), Done::default());
        Ok(Self { array, drives, contents, policies: Vec::new(), rng, next_write, commands, done })
    }

    /// Acts while writers write, until the acts are done; then all is compared and checked.
    fn run(&mut self, plan: &Plan) -> Result<String> {
        let mut acts = 1 + self.rng.below(2 * plan.acts);
        let mut told = Vec::new();
        while acts > 0 {
            let stretch = 1 + self.rng.below(acts);
            acts -= stretch;
            let kill = self.rng.below(2) == 0;
            self.stretch(stretch, kill, &mut told).with_context(|| told.join(", "))?;
        }
        self.wait_for_rebuild().with_context(|| told.join(", "))?;
        self.compare().with_context(|| told.join(", "))?;
        // What rotted and is not in use any more is made good, too.
        self.scrub().with_context(|| told.join(", "))?;
        let said = self.array.stop_and_check().with_context(|| told.join(", "))?;
        ensure!(!said.contains("damage"), "the check at the end: {said}");
        Ok(told.join(", "))
    }

    /// Some acts while writers write, the last of which may be a kill; then the volumes are compared.
    fn stretch(&mut self, acts: u64, kill: bool, told: &mut Vec<String>) -> Result<()> {
        let volumes = (0..self.contents.len()).map(|volume| {
            let (endpoint, blocks) = (self.array.endpoint(volume as u32)?, self.contents[volume].len());
            Ok((endpoint, blocks))
        });
        let volumes: Vec<(Endpoint, usize)> = volumes.collect::<Result<_>>()?;
        let (chains, seed) = (Chains::default(), self.rng.next());
        let next_write = std::mem::take(&mut self.next_write);
        let mut stays_away = None;
        let outcome: Result<()> = std::thread::scope(|scope| {
            let writers = scope.spawn(|| chains.run(&volumes, &next_write, seed));
            let acted = (|| -> Result<()> {
                for _ in 0..acts {
                    pause(Duration::from_millis(self.rng.below(400)))?;
                    told.push(self.act()?);
                    self.done.acts += 1;
                }
                pause(Duration::from_millis(self.rng.below(400)))?;
                if kill {
                    stays_away = if self.rng.below(2) == 0 { self.some_spare()? } else { None };
                    told.push("kill".to_owned());
                    self.note("kill")?;
                    self.array.kill()?;
                }
                Ok(())
            })();
            chains.stop();
            let wrote = writers.join().expect("the writers do not panic");
            acted?;
            // Who writes to an array that is killed sees errors.
            if kill { Ok(()) } else { wrote.context("hosts saw an error") }
        });
        self.next_write = next_write;
        outcome?;
        if kill {
            self.start_again(stays_away, told)?;
        }
        let found = self.read_all()?;
        let (least, most) = (chains.acknowledged(), chains.sent());
        chains
            .moment(&self.contents, &found, &least, &most)
            .map_err(|what| anyhow!("the volumes after the writers ended: {what}"))?;
        self.contents = found;
        self.done.writes += least.iter().sum::<usize>();
        Ok(())
    }

    /// Starts the array again, perhaps without one of its drives, which is there again a little later.
    fn start_again(&mut self, without: Option<usize>, told: &mut Vec<String>) -> Result<()> {
        self.done.kills += 1;
        self.drives.all_work_again();
        let Some(place) = without else {
            return self.array.start().map(drop);
        };
        let path = self.drives.all[place].path.clone();
        // Beside the others the array would find it, without what is emulated at its own path.
        let away = path.with_file_name("away");
        std::fs::create_dir_all(&away)?;
        let elsewhere = away.join("drive");
        self.note(&format!("start without {}", path.display()))?;
        std::fs::rename(&path, &elsewhere)?;
        self.array.start()?;
        pause(Duration::from_millis(self.rng.below(3000)))?;
        std::fs::rename(&elsewhere, &path)?;
        self.wait_until_settled(&path.display().to_string())?;
        told.push(format!("start without {place}"));
        Ok(())
    }

    /// Waits until as much is protected again as can be.
    fn wait_for_rebuild(&self) -> Result<()> {
        wait_until("the end of the rebuild", REBUILD_LIMIT, || {
            let protection = &self.array.status()?["protection"];
            Ok(protection["degraded_segments"].as_u64() == Some(0) || protection["next"].is_string())
        })
    }

    /// Compares all volumes with what they have to hold.
    fn compare(&mut self) -> Result<()> {
        let found = self.read_all()?;
        for (volume, (expected, found)) in self.contents.iter().zip(&found).enumerate() {
            crate::raw::compare(expected, found).map_err(|what| anyhow!("volume v{volume}: {what}"))?;
        }
        Ok(())
    }

    /// The writes that the blocks of all volumes are of.
    fn read_all(&mut self) -> Result<Vec<Content>> {
        (0..self.contents.len()).map(|volume| self.read(volume)).collect()
    }

    fn read(&mut self, volume: usize) -> Result<Content> {
        let mut disk = chains::open(&self.array.endpoint(volume as u32)?)?;
        let data = disk.read(0, VOLUME_BYTES).with_context(|| format!("reading volume v{volume}"))?;
        let blocks = data.chunks_exact(BLOCK_BYTES).enumerate();
        let writes = blocks.map(|(block, data)| write_of(block as u64, data));
        let writes = writes.collect::<Result<Content, String>>();
        self.done.blocks_compared += VOLUME_BYTES / BLOCK_BYTES;
        disk.close()?;
        writes.map_err(|what| anyhow!("volume v{volume}: {what}"))
    }

    fn note(&mut self, what: &str) -> Result<()> {
        Ok(writeln!(self.commands, "{what}")?)
    }
}
