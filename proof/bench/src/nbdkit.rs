//! The peer over NBD: nbdkit's file plugin, its `fua` filter forcing a flush of the file for each write. And fio's NBD
//! engine, the load generator for it and for Quoin.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::load::Pattern;
use crate::matrix::{MIX, Row};
use crate::process::{Running, free_port, line, wait_until};
use crate::quoin::VOLUME;

/// A running nbdkit that serves one file.
pub(crate) struct Nbdkit {
    pub(crate) process: Running,
    pub(crate) address: SocketAddr,
    pub(crate) command: String,
}

impl Nbdkit {
    /// Starts nbdkit on `file`; its log goes to `dir`.
    pub(crate) fn start(dir: &Path, file: &Path) -> Result<Nbdkit> {
        version()?;
        let address = free_port()?;
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--ipaddr", &ip, "--port", &port, "--exportname", VOLUME]);
        command.args(["--filter=fua", "file"]).arg(file).arg("fuamode=force");
        let log = dir.join("nbdkit.log");
        let mut process = Running::start("nbdkit", &command, Signal::TERM, File::create(&log)?)?;
        wait_until("nbdkit answers", Duration::from_secs(10), || {
            process.check_alive()?;
            Ok(std::net::TcpStream::connect(address).is_ok())
        })
        .with_context(|| format!("nbdkit did not start; its log is {}", log.display()))?;
        Ok(Nbdkit { process, address, command: line(&command) })
    }
}

/// fio over NBD; what it leaves behind goes to `dir`.
pub(crate) fn fio(row: &Row, dir: &Path, address: SocketAddr, bytes: u64, seconds: f64) -> Command {
    let rw = if row.pattern == Pattern::Randrw { "randrw" } else { "randwrite" };
    let mut command = Command::new("fio");
    command.args(["--name=nbd", "--ioengine=nbd", "--time_based", "--lat_percentiles=1"]);
    command.args([format!("--rw={rw}"), format!("--rwmixread={MIX}"), format!("--bs={}", row.io_bytes)]);
    command.args([
        format!("--iodepth={}", row.depth),
        format!("--size={bytes}"),
        format!("--runtime={seconds}"),
    ]);
    command.args(["--randrepeat=0", "--norandommap", "--output-format=json"]);
    command.arg(format!("--uri=nbd://{address}/{VOLUME}")).arg(format!("--directory={}", dir.display()));
    command
}

/// Version of the installed nbdkit, or what to do if there is none.
pub(crate) fn version() -> Result<String> {
    let output = Command::new("nbdkit")
        .arg("--version")
        .output()
        .context("cannot run nbdkit; install Debian's package 'nbdkit'")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
