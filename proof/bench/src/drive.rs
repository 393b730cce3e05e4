//! The limit of the drive: `fio` with io_uring and `O_DIRECT` on a file of the same file system.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::load::Cpu;
use crate::stats::Percentiles;

/// How writes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Reads need none.
    None,
    /// Each write on its own (`O_DSYNC`), as many at once as the depth says.
    Each,
}

/// Transfers on the bare file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) write: bool,
    pub(crate) random: bool,
    /// Share of reads in percent, if both are wanted.
    pub(crate) mix: Option<u64>,
    pub(crate) io_bytes: u64,
    pub(crate) depth: usize,
    pub(crate) flush: Flush,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Drive {
    pub(crate) iops: f64,
    pub(crate) mb_per_second: f64,
    pub(crate) latency_us: Percentiles,
    pub(crate) cpu: Cpu,
}

/// Version of the installed fio, or what to do if there is none.
pub(crate) fn version() -> Result<String> {
    let output = Command::new("fio")
        .arg("--version")
        .output()
        .context("cannot run fio; install Debian's package 'fio'")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The command that measures `access` on `file`.
pub(crate) fn command(access: Access, file: &Path, bytes: u64, seconds: f64) -> Command {
    let pattern = match (access.mix, access.random, access.write) {
        (Some(_), ..) => "randrw",
        (None, true, true) => "randwrite",
        (None, true, false) => "randread",
        (None, false, true) => "write",
        (None, false, false) => "read",
    };
    let mut command = Command::new("fio");
    command.args([
        "--name=limit",
        "--ioengine=io_uring",
        "--direct=1",
        "--time_based",
        "--lat_percentiles=1",
        "--output-format=json",
    ]);
    command.arg(format!("--filename={}", file.display()));
    command.args([format!("--rw={pattern}"), format!("--bs={}", access.io_bytes)]);
    command.args([format!("--iodepth={}", access.depth), format!("--size={bytes}")]);
    command.args([format!("--runtime={seconds}"), "--randrepeat=0".to_owned(), "--norandommap".to_owned()]);
    command.args(access.mix.map(|share| format!("--rwmixread={share}")));
    match access.flush {
        Flush::None => {}
        Flush::Each => drop(command.arg("--sync=dsync")),
    }
    command
}

/// Runs a command of fio that reports as JSON.
pub(crate) fn measure(mut command: Command) -> Result<Drive> {
    let output = command.output().context("cannot run fio; install Debian's package 'fio'")?;
    ensure!(output.status.success(), "fio failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    parse(&output.stdout).context("fio's report is not understood")
}

fn parse(json: &[u8]) -> Result<Drive> {
    let start = json.iter().position(|&byte| byte == b'{').context("it is not JSON")?;
    let report: Value = serde_json::from_slice(&json[start..])?;
    let job = &report["jobs"][0];
    let sides = [&job["read"], &job["write"]];
    let sum = |field: &str| sides.iter().map(|side| side[field].as_f64().unwrap_or(0.0)).sum::<f64>();
    let (ios, wall) = (sum("total_ios"), job["job_runtime"].as_f64().context("no job_runtime")? / 1e3);
    ensure!(ios > 0.0 && wall > 0.0, "it did no I/O");
    // A mix is told by its slower side.
    let worst = |at: &dyn Fn(&Value) -> f64| sides.iter().map(|side| at(side)).fold(0.0, f64::max) / 1e3;
    let quantile =
        |name: &'static str| worst(&move |side| side["lat_ns"]["percentile"][name].as_f64().unwrap_or(0.0));
    let percent = job["usr_cpu"].as_f64().unwrap_or(0.0) + job["sys_cpu"].as_f64().unwrap_or(0.0);
    Ok(Drive {
        iops: sum("iops"),
        mb_per_second: sum("bw_bytes") / 1e6,
        latency_us: Percentiles {
            mean: worst(&|side| side["lat_ns"]["mean"].as_f64().unwrap_or(0.0)),
            p50: quantile("50.000000"),
            p99: quantile("99.000000"),
            p999: quantile("99.900000"),
            max: worst(&|side| side["lat_ns"]["max"].as_f64().unwrap_or(0.0)),
        },
        cpu: Cpu::new(percent / 100.0 * wall, ios as u64, wall),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_even_behind_a_warning() {
        let json = br#"fio: a warning
            {"jobs":[{"job_runtime":2000,"usr_cpu":5.0,"sys_cpu":15.0,
              "read":{"total_ios":0,"iops":0,"bw_bytes":0,"lat_ns":{"max":0,"mean":0}},
              "write":{"total_ios":1000,"iops":500,"bw_bytes":4096000,
                "lat_ns":{"max":9000,"mean":2000,"percentile":{"50.000000":1000,"99.000000":5000,"99.900000":8000}}}}]}"#;
        let drive = parse(json).unwrap();
        assert_eq!((drive.iops, drive.mb_per_second), (500.0, 4.096));
        let us = drive.latency_us;
        assert_eq!((us.mean, us.p50, us.p99, us.p999, us.max), (2.0, 1.0, 5.0, 8.0, 9.0));
        assert!((drive.cpu.us_per_io - 400.0).abs() < 1e-9);
        for bad in [&b""[..], b"{}", b"{\"jobs\":[{\"job_runtime\":1}]}"] {
            assert!(parse(bad).is_err());
        }
    }

    #[test]
    fn durable_writes_flush() {
        let base =
            Access { write: true, random: true, mix: None, io_bytes: 8192, depth: 32, flush: Flush::Each };
        let args = |access| crate::process::line(&command(access, Path::new("f"), 1 << 20, 1.0));
        assert!(
            args(base).contains("--rw=randwrite --bs=8192 --iodepth=32")
                && args(base).contains("--sync=dsync")
        );
        assert!(args(Access { mix: Some(70), ..base }).contains("--rw=randrw"));
    }
}
