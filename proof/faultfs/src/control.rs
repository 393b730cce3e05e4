//! Commands, and the socket they come over: one JSON command a line, one JSON answer a line.

use crate::{CutMode, FaultFsError, Shelf};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::Arc,
};

/// Operations of a drive that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Reads.
    Read,
    /// Writes, zeroing and allocation.
    Write,
    /// Flushes; a durable write counts as a write.
    Flush,
}

/// What can be done to the drives while they are in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, clap::Subcommand)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Show all drives: held bytes, counters, faults
    Status,
    /// Cut the power of all drives; held writes are lost, torn or kept
    PowerCut {
        /// Decides the fate of each held write
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// What may happen to a held write
        #[arg(long, value_enum, default_value = "mix")]
        mode: CutMode,
    },
    /// Give the power back; handles opened before the cut stay dead
    Restore,
    /// Put everything held on the medium
    Flush,
    /// Make operations of a drive fail with EIO
    Fail {
        /// File name of the drive
        drive: String,
        /// Operations, separated by commas
        #[arg(long, value_enum, value_delimiter = ',', default_value = "read,write,flush")]
        ops: Vec<Op>,
    },
    /// Delay every operation of a drive
    Slow {
        /// File name of the drive
        drive: String,
        /// The delay in milliseconds
        delay_ms: u64,
    },
    /// Answer no operation of a drive until it is healed; then all that was asked of it is done
    Hang {
        /// File name of the drive
        drive: String,
    },
    /// Fail writes of a drive with ENOSPC where they need space on the medium
    Full {
        /// File name of the drive
        drive: String,
    },
    /// Acknowledge flushes and durable writes of a drive without making anything durable
    IgnoreFlushes {
        /// File name of the drive
        drive: String,
    },
    /// Take back fail, slow, hang, full and ignore-flushes
    Heal {
        /// File name of the drive
        drive: String,
    },
    /// Flip one bit in every sector of a range on the medium
    Corrupt {
        /// File name of the drive
        drive: String,
        /// First byte
        #[arg(long)]
        offset: u64,
        /// Bytes
        #[arg(long, default_value_t = 512)]
        len: u64,
        /// Decides which bits
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Done(serde_json::Value),
    Refused(String),
}

/// Listens on a Unix socket and serves commands on threads of their own until the process ends.
///
/// # Errors
/// [`FaultFsError::Control`] if the socket cannot be bound.
pub fn serve(shelf: Arc<Shelf>, socket: &Path) -> Result<(), FaultFsError> {
    let failed = |source| FaultFsError::Control { path: socket.to_owned(), source };
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let shelf = shelf.clone();
            std::thread::spawn(move || answer(&shelf, &stream));
        }
    });
    Ok(())
}

fn answer(shelf: &Shelf, mut stream: &UnixStream) -> io::Result<()> {
    for line in BufReader::new(stream).lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(command) => match shelf.apply(&command) {
                Ok(report) => Answer::Done(report),
                Err(error) => Answer::Refused(error.to_string()),
            },
            Err(error) => Answer::Refused(format!("not a command: {error}")),
        };
        stream.write_all(format!("{}\n", serde_json::to_string(&answer)?).as_bytes())?;
    }
    Ok(())
}

/// Sends one command to a control socket and waits for its answer.
///
/// # Errors
/// [`FaultFsError::Refused`] if the command was refused, [`FaultFsError::Control`] if nobody answers.
pub fn ask(socket: &Path, command: &Command) -> Result<serde_json::Value, FaultFsError> {
    let exchange = || -> io::Result<Answer> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(format!("{}\n", serde_json::to_string(command)?).as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    match exchange().map_err(|source| FaultFsError::Control { path: socket.to_owned(), source })? {
        Answer::Done(report) => Ok(report),
        Answer::Refused(reason) => Err(FaultFsError::Refused(reason)),
    }
}
