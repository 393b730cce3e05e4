//! What the commands save that have the array copy and zero: against a host that reads and writes, over the same sessions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use quoin_initiator::{Command, Connection, Disk};

use crate::load::At;
use crate::units::{parse_bytes, show_bytes};

/// Most bytes of one WRITE SAME, as the target tells them.
const ZEROES_BYTES: u64 = 512 << 20;
/// How much a session of the host reads before it writes it.
const PIECE_BYTES: u64 = 4 << 20;

/// What to copy, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    at: At,
    /// Logical unit to copy to, which is overwritten.
    #[arg(long, default_value_t = 2)]
    to_lun: u16,
    /// How much to copy; all of the smaller unit by default.
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    bytes: Option<u64>,
    /// Bytes that one EXTENDED COPY copies.
    #[arg(long, value_parser = parse_bytes, default_value = "4m", value_name = "SIZE")]
    segment: u64,
    /// Commands in flight.
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Sessions of the host that reads and writes.
    #[arg(long, default_value_t = 2)]
    sessions: u16,
    /// How often each is done.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Pause after each, for the array to destage.
    #[arg(long, default_value_t = 10.0)]
    pause: f64,
    /// Leave out the host that reads and writes.
    #[arg(long)]
    no_host: bool,
}

/// Seconds that one round took.
struct Round {
    host: Option<f64>,
    array: f64,
    /// Zeroes over what was just copied, and over what is destaged.
    zeroes: f64,
    zeroes_later: f64,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let bytes = bytes(options)?;
    println!("{} from LUN {} to LUN {}, in seconds", show_bytes(bytes), options.at.lun, options.to_lun);
    println!("round   by host  by array   ratio  zeroes at once  zeroes later");
    for number in 1..=options.rounds {
        let Round { host, array, zeroes, zeroes_later } = round(options, bytes)?;
        let by_host = host.map_or("-".into(), |host| format!("{host:.2}"));
        let ratio = host.map_or("-".into(), |host| format!("{:.1}", host / array));
        println!("{number:>5} {by_host:>9} {array:>9.3} {ratio:>7} {zeroes:>15.3} {zeroes_later:>13.3}");
    }
    Ok(true)
}

fn round(options: &Options, bytes: u64) -> Result<Round> {
    let pause = || std::thread::sleep(Duration::from_secs_f64(options.pause));
    let mut host = None;
    if !options.no_host {
        host = Some(seconds(|| copy_by_host(options, bytes))?);
        pause();
        zero(options, bytes)?;
        pause();
    }
    let array = seconds(|| copy_by_array(options, bytes))?;
    let zeroes = seconds(|| zero(options, bytes))?;
    pause();
    copy_by_array(options, bytes)?;
    compare(options, bytes)?;
    pause();
    let zeroes_later = seconds(|| zero(options, bytes))?;
    pause();
    Ok(Round { host, array, zeroes, zeroes_later })
}

fn seconds(run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    run()?;
    Ok(began.elapsed().as_secs_f64())
}

fn at_target(options: &Options) -> At {
    At { lun: options.to_lun, ..options.at.clone() }
}

fn bytes(options: &Options) -> Result<u64> {
    let size = |at: &At| Ok::<_, anyhow::Error>(Disk::open(&at.endpoint(), 1)?.bytes());
    let most = size(&options.at)?.min(size(&at_target(options))?);
    let bytes = options.bytes.unwrap_or(most);
    ensure!(bytes <= most && bytes > 0, "{} are not in both units", show_bytes(bytes));
    ensure!(options.segment > 0 && options.depth > 0 && options.sessions > 0, "nothing would be copied");
    Ok(bytes)
}

/// Reads and writes all of it, each session a piece at a time.
fn copy_by_host(options: &Options, bytes: u64) -> Result<()> {
    let sessions = u64::from(options.sessions);
    let copy = |session: u64| -> Result<()> {
        let mut from = Disk::open(&options.at.endpoint(), 10 + 2 * session as u16)?;
        let mut to = Disk::open(&at_target(options).endpoint(), 11 + 2 * session as u16)?;
        for offset in
            (0..bytes).step_by(PIECE_BYTES as usize).skip(session as usize).step_by(sessions as usize)
        {
            let mut data = from.read(offset, PIECE_BYTES.min(bytes - offset) as usize)?;
            to.write(offset, &mut data)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..sessions).map(|session| scope.spawn(move || copy(session))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("a session does not panic"));
        ended.collect::<Result<Vec<()>>>().map(drop)
    })
}

/// The unit's blocks and its identifier.
fn unit(at: &At) -> Result<(Connection, u64, Vec<u8>)> {
    let mut connection = Connection::login(&at.endpoint(), 5)?;
    let block = u64::from(connection.capacity()?.block_bytes);
    let naa = connection.naa()?;
    Ok((connection, block, naa))
}

fn copy_by_array(options: &Options, bytes: u64) -> Result<()> {
    let (_, from_block, from) = unit(&options.at)?;
    let (mut connection, to_block, to) = unit(&at_target(options))?;
    let segments = (0..bytes).step_by(options.segment as usize);
    let commands = segments.map(|offset| {
        let blocks = u16::try_from(options.segment.min(bytes - offset) / from_block);
        let blocks = blocks.context("an EXTENDED COPY counts at most 65535 blocks")?;
        Ok(Command::extended_copy((&from, offset / from_block), (&to, offset / to_block), blocks))
    });
    connection.run_commands(commands.collect::<Result<_>>()?, options.depth)
}

/// Zeroes all of it, one command after the other.
fn zero(options: &Options, bytes: u64) -> Result<()> {
    let (mut connection, block, _) = unit(&at_target(options))?;
    let ranges = (0..bytes).step_by(ZEROES_BYTES as usize);
    let commands = ranges.map(|offset| {
        let blocks = (ZEROES_BYTES.min(bytes - offset) / block) as u32;
        Command::write_zeroes(offset / block, blocks, block as u32)
    });
    connection.run_commands(commands.collect(), 1)
}

/// Compares a part of every 64 MiB, byte by byte.
fn compare(options: &Options, bytes: u64) -> Result<()> {
    let mut units = [Disk::open(&options.at.endpoint(), 3)?, Disk::open(&at_target(options).endpoint(), 4)?];
    for offset in (0..bytes).step_by(64 << 20) {
        let len = (1 << 20).min(bytes - offset) as usize;
        let [from, to] = &mut units;
        ensure!(
            from.read(offset, len)? == to.read(offset, len)?,
            "the copy differs in the MiB from byte {offset} on"
        );
    }
    Ok(())
}
