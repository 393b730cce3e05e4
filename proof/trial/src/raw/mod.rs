//! Snapshots, clones, restores and deletions of volumes without a database, many rounds in a minute, over iSCSI.
//!
//! A chapter has a consistency group of some volumes. Each of its rounds takes a snapshot of the group while writers
//! write ([`chains`]), does some of everything else that can be done with volumes, snapshots and clones, writes to any
//! of them, and reads back what it likes; what each block of each object has to be is known at all times. Now and then
//! the array is killed. At its end a chapter verifies all objects and deletes them, in an order that is drawn; then
//! nothing may be left in the pool.

mod act;
pub(crate) mod chains;
mod objects;
pub(crate) mod stamp;

use crate::{
    array::{Array, Kind as ArrayKind, Pool, reduction},
    process::{pause, run as run_command},
    space,
};
use anyhow::{Context, Result, anyhow, ensure};
use chains::{Chains, Content, Counts};
pub(crate) use objects::compare;
use objects::{Kind, Object, Objects};
use quoin_initiator::{Endpoint, Rng};
use stamp::{BLOCK_BYTES, write_of};
use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

const GROUP: &str = "g";
const DRIVES: u32 = 2;
const DRIVE_BYTES: u64 = 3 << 30;
/// The longest write of the trial beside the writers' own.
const LONGEST_BLOCKS: u64 = 64;

/// How much of it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Rounds
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Rounds until all is deleted and the next group is made
    #[arg(long, default_value_t = 10)]
    chapter: u32,
    /// Kill the array every this many rounds
    #[arg(long, default_value_t = 7)]
    kill_every: u32,
    /// The largest number of volumes of a group
    #[arg(long, default_value_t = 6)]
    members: u64,
    /// Slices of the array's pool
    #[arg(long, default_value_t = 1)]
    slices: u8,
    /// Decides all; drawn and printed if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The quoin binary; the one beside this program if not given
    #[arg(long)]
    pub(crate) quoin: Option<PathBuf>,
}

/// What was done, for the last line.
#[derive(Debug, Default)]
struct Done {
    snapshots_of_groups: u32,
    kills: u32,
    acts: u32,
    blocks_compared: u64,
}

/// What writers did while a command ran.
struct Written {
    chains: Chains,
    /// The volumes before.
    base: Vec<Content>,
    /// Acknowledged when the command was begun.
    least: Counts,
    /// Sent when it had ended.
    most: Counts,
    /// The command said that it was done.
    told: bool,
}

/// The array and all that the trial knows of it.
struct Trial {
    array: Array,
    objects: Objects,
    members: Vec<String>,
    sets: Vec<String>,
    rng: Rng,
    next_write: AtomicU64,
    next_name: u32,
    next_lun: u32,
    commands: File,
    done: Done,
}

/// Runs all rounds on an array of its own.
pub(crate) fn run(plan: &Plan, quoin: &Path, work: &Path, seed: u64) -> Result<()> {
    let started = Instant::now();
    let drives = (0..DRIVES).map(|number| work.join(format!("drive{number}")));
    let drives = drives.map(|path| File::create(&path)?.set_len(DRIVE_BYTES).map(|()| path));
    let drives = drives.collect::<std::io::Result<_>>().context("making the drives")?;
    let mut trial = Trial {
        array: Array::without_volumes(ArrayKind::Quoin, quoin, work, Pool::of(drives, plan.slices))?,
        objects: Objects::default(),
        members: Vec::new(),
        sets: Vec::new(),
        rng: Rng::new(seed),
        next_write: AtomicU64::new(1),
        next_name: 0,
        next_lun: 0,
        commands: File::create(work.join("commands.log"))?,
        done: Done::default(),
    };
    for round in 0..plan.rounds {
        let (first, last) =
            (round % plan.chapter == 0, (round + 1) % plan.chapter == 0 || round + 1 == plan.rounds);
        let context =
            || format!("round {}; all commands are in {}", round + 1, work.join("commands.log").display());
        if first {
            trial.begin_chapter(plan).with_context(context)?;
        }
        trial.round(round, plan).with_context(context)?;
        if last {
            let told = trial.end_chapter().with_context(context)?;
            println!("[{:5.1} s] round {}: {told}", started.elapsed().as_secs_f64(), round + 1);
        }
    }
    let said = trial.array.stop_and_check()?;
    let Done { snapshots_of_groups, kills, acts, blocks_compared } = trial.done;
    println!(
        "{} rounds in {:.1} s: {snapshots_of_groups} snapshots of groups under load, {acts} other acts, {kills} kills, \
         {blocks_compared} blocks compared; {}",
        plan.rounds,
        started.elapsed().as_secs_f64(),
        said.lines().last().unwrap_or_default()
    );
    Ok(())
}

impl Trial {
    fn begin_chapter(&mut self, plan: &Plan) -> Result<()> {
        for _ in 0..1 + self.rng.below(plan.members) {
            let blocks = 512 * (1 + self.rng.below(4)) as usize;
            let name = self.name("v");
            let size = (blocks * BLOCK_BYTES).to_string();
            self.tell(&[&["volume", "create", &name, "--size", &size], reduction(&name)].concat())?;
            self.objects.0.insert(name.clone(), Object::new(Kind::Volume, None, vec![0; blocks]));
            self.map(&name)?;
            self.members.push(name);
        }
        let volumes: Vec<&str> = self.members.iter().flat_map(|name| ["--volume", name]).collect();
        let create = [&["group", "create", GROUP][..], &volumes].concat().into_iter().map(str::to_owned);
        self.tell(&create.collect::<Vec<_>>())
    }

    fn round(&mut self, round: u32, plan: &Plan) -> Result<()> {
        let kill = round % plan.kill_every == plan.kill_every - 1;
        self.group_snapshot_under_load(kill)?;
        if self.rng.below(4) == 0 {
            self.restore_under_load()?;
        }
        for _ in 0..2 + self.rng.below(5) {
            self.act()?;
            self.done.acts += 1;
        }
        let names: Vec<String> = self.objects.0.keys().cloned().collect();
        for name in &names {
            if kill || self.rng.below(4) == 0 {
                self.verify(name)?;
            }
        }
        Ok(())
    }

    /// Verifies all, deletes all in any order, and waits until the pool is empty.
    fn end_chapter(&mut self) -> Result<String> {
        let names: Vec<String> = self.objects.0.keys().cloned().collect();
        for name in &names {
            self.verify(name)?;
        }
        self.delete_all()?;
        let back = space::back(&self.array)?;
        ensure!(back.used_bytes == 0, "nothing is left that could hold space, and {back}");
        Ok(format!("{} objects right and deleted; {back}", names.len()))
    }

    /// Runs a command about the group while writers write to all of its volumes; may kill the array meanwhile.
    fn while_writing(&mut self, command: &[&str], kill: bool) -> Result<Written> {
        let volumes = self.members.iter().map(|name| {
            let object = self.objects.get(name);
            Ok((self.array.endpoint(object.lun.context("members are mapped")?)?, object.content.len()))
        });
        let volumes: Vec<(Endpoint, usize)> = volumes.collect::<Result<_>>()?;
        let base = self.members.iter().map(|name| self.objects.get(name).content.clone()).collect();
        let (before, after) = (self.rng.below(25), self.rng.below(10));
        let (chains, seed) = (Chains::default(), self.rng.next());
        let next_write = std::mem::take(&mut self.next_write);
        self.note(command)?;
        let command = self.array.command(command);
        let outcome = std::thread::scope(|scope| {
            let writers = scope.spawn(|| chains.run(&volumes, &next_write, seed));
            let told = (|| {
                pause(Duration::from_millis(15 + before))?;
                let least = chains.acknowledged();
                if !kill {
                    run_command(&command)?;
                    let most = chains.sent();
                    pause(Duration::from_millis(after))?;
                    return Ok((true, least, most));
                }
                let told = scope.spawn(|| run_command(&command));
                pause(Duration::from_millis(before))?;
                self.array.kill()?;
                let told = told.join().expect("running a command does not panic");
                Ok((told.is_ok(), least, chains.sent()))
            })();
            chains.stop();
            let wrote = writers.join().expect("the writers do not panic");
            if !kill {
                wrote?;
            }
            told
        });
        let (told, least, most) =
            outcome.map_err(|error: anyhow::Error| error.context("while writers write"))?;
        self.next_write = next_write;
        if kill {
            self.revive()?;
        }
        Ok(Written { chains, base, least, most, told })
    }

    /// Takes a snapshot of the group while writers write; may kill the array meanwhile.
    fn group_snapshot_under_load(&mut self, kill: bool) -> Result<()> {
        let set = self.name("s");
        let Written { chains, base, least, most, told } =
            self.while_writing(&["group", "snapshot", GROUP, &set, "--writable"], kill)?;
        let members = self.members.clone();
        let found = members.iter().map(|name| self.read(name)).collect::<Result<Vec<_>>>()?;
        chains
            .moment(&base, &found, &chains.acknowledged(), &chains.sent())
            .map_err(|what| anyhow!("the volumes after the writers ended: {what}"))?;
        for (name, content) in members.iter().zip(found) {
            self.objects.get_mut(name).content = content;
        }
        if kill {
            let there = self.known_of(&set)?;
            ensure!(
                there == members.len() || there == 0 && !told,
                "after the array was killed set {set} has {there} of {} snapshots; the command {}",
                members.len(),
                if told { "had said it was taken" } else { "had not ended" }
            );
            if there == 0 {
                return Ok(());
            }
        }
        self.new_set(&set, &chains, &base, &least, &most)?;
        self.done.snapshots_of_groups += 1;
        Ok(())
    }

    /// Takes the group back to a set, keeping what it is in another, while writers write: what was acknowledged is in the
    /// set that is kept or came after the restore, and then is in the volumes.
    fn restore_under_load(&mut self) -> Result<()> {
        let Some(set) = self.any_set() else { return Ok(()) };
        let kept = self.name("k");
        let command = ["group", "restore", GROUP, &set, "--keep", &kept, "--force"];
        let Written { chains, base, least, most, .. } = self.while_writing(&command, false)?;
        let counts = self.new_set(&kept, &chains, &base, &least, &most)?;
        let members = self.members.clone();
        // They are written to, and become what their own snapshots are.
        for member in &members {
            self.tell(&["volume", "set", &format!("{member}.{kept}"), "--writable"])?;
        }
        let mut expected: Vec<Content> =
            members.iter().map(|name| self.objects.get(&format!("{name}.{set}")).content.clone()).collect();
        chains.apply_from(&counts, &mut expected);
        for (name, expected) in members.iter().zip(expected) {
            let found = self.read(name)?;
            objects::compare(&expected, &found).map_err(|what| {
                anyhow!(
                    "volume {name} after it was restored from {set} under load, and kept as {kept}: {what}"
                )
            })?;
            self.objects.get_mut(name).content = found;
        }
        Ok(())
    }

    /// Reads the snapshots of a set that was taken while writers wrote; they have to be of one moment. Returns how many
    /// writes of each writer they have.
    fn new_set(
        &mut self,
        set: &str,
        chains: &Chains,
        base: &[Content],
        least: &Counts,
        most: &Counts,
    ) -> Result<Counts> {
        let mut found = Vec::new();
        for (member, base) in self.members.clone().iter().zip(base) {
            let name = format!("{member}.{set}");
            let mut object = Object::new(Kind::Snapshot, Some(member), base.clone());
            object.set = Some(set.to_owned());
            self.objects.0.insert(name.clone(), object);
            let content = self.read(&name)?;
            self.objects.get_mut(&name).content.clone_from(&content);
            found.push(content);
        }
        self.sets.push(set.to_owned());
        chains.moment(base, &found, least, most).map_err(|what| anyhow!("set {set}: {what}"))
    }

    fn revive(&mut self) -> Result<()> {
        self.objects.disconnect();
        self.array.start()?;
        self.done.kills += 1;
        Ok(())
    }

    /// How many snapshots of a set the array lists.
    fn known_of(&self, set: &str) -> Result<usize> {
        let listed: serde_json::Value =
            serde_json::from_str(&self.array.tell(&["snapshot", "list", "-o", "json"])?)?;
        let listed: Vec<&str> =
            listed.as_array().into_iter().flatten().filter_map(|s| s["name"].as_str()).collect();
        Ok(self.members.iter().filter(|name| listed.contains(&format!("{name}.{set}").as_str())).count())
    }

    /// Compares all of an object with what it has to hold.
    fn verify(&mut self, name: &str) -> Result<()> {
        let found = self.read(name)?;
        let object = self.objects.get(name);
        objects::compare(&object.content, &found).map_err(|what| anyhow!("{:?} {name}: {what}", object.kind))
    }

    /// The writes that the blocks of an object are of.
    fn read(&mut self, name: &str) -> Result<Content> {
        self.connect(name)?;
        let object = self.objects.get_mut(name);
        let disk = object.disk.as_mut().context("connected")?;
        let bytes = object.content.len() * BLOCK_BYTES;
        ensure!(disk.bytes() == bytes as u64, "{name} has {} bytes instead of {bytes}", disk.bytes());
        let data = disk.read(0, bytes).with_context(|| format!("reading {name}"))?;
        let blocks = data.chunks_exact(BLOCK_BYTES).enumerate();
        let writes = blocks.map(|(block, data)| write_of(block as u64, data));
        let writes = writes.collect::<Result<Content, String>>();
        self.done.blocks_compared += object.content.len() as u64;
        writes.map_err(|what| anyhow!("{:?} {name}: {what}", object.kind))
    }

    fn connect(&mut self, name: &str) -> Result<()> {
        let lun = match self.objects.get(name).lun {
            Some(lun) => lun,
            None => self.map(name)?,
        };
        if self.objects.get(name).disk.is_none() {
            let disk =
                chains::open(&self.array.endpoint(lun)?).with_context(|| format!("{name} at LUN {lun}"))?;
            self.objects.get_mut(name).disk = Some(disk);
        }
        Ok(())
    }

    fn map(&mut self, name: &str) -> Result<u32> {
        let lun = self.next_lun;
        self.next_lun = (lun + 1) % 16_384;
        self.note(&["map", name, &lun.to_string()])?;
        self.array.map(name, lun)?;
        self.objects.get_mut(name).lun = Some(lun);
        Ok(lun)
    }

    fn name(&mut self, prefix: &str) -> String {
        self.next_name += 1;
        format!("{prefix}{}", self.next_name)
    }

    /// Runs a command of the array, and keeps it for a look if something goes wrong.
    fn tell<S: AsRef<str>>(&mut self, args: &[S]) -> Result<()> {
        self.note(args)?;
        self.array.tell(&args.iter().map(AsRef::as_ref).collect::<Vec<_>>()).map(drop)
    }

    fn note<S: AsRef<str>>(&mut self, args: &[S]) -> Result<()> {
        let line: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        Ok(writeln!(self.commands, "{}", line.join(" "))?)
    }
}
