//! One run of one target, and the figures that bars and page are made of.

use serde::Serialize;

use crate::drive::Drive;
use crate::load;
use crate::long::Parts;
use crate::quoin::Engine;

const MIB: f64 = (1 << 20) as f64;

/// One run of one target in one round of a row.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) iops: f64,
    pub(crate) mb_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    /// CPU of the target's process.
    pub(crate) cpu_us_per_io: f64,
    pub(crate) cpu_us_per_mib: f64,
    /// Cores that the load generator kept busy.
    pub(crate) generator_cores: f64,
    /// Cores that neither target nor generator used: the kernel's workers, or strangers.
    pub(crate) elsewhere_cores: Option<f64>,
    /// Bytes read from the drives for each byte that hosts read or wrote.
    pub(crate) drive_read: Option<f64>,
    /// Bytes written to the drives for each byte that hosts read or wrote.
    pub(crate) drive_written: Option<f64>,
    /// Of Quoin: the share of blocks found in the read cache, if any were read.
    pub(crate) hit_ratio: Option<f64>,
    /// Of a long run of Quoin.
    pub(crate) parts: Option<Parts>,
    /// Of a run beside a backup.
    pub(crate) beside: Option<Beside>,
    /// How fast the target's files were read through before the run, the slowest of them.
    pub(crate) read_through_mb_per_second: f64,
    /// What the bare drive did on each of the target's files before the run.
    pub(crate) probes_mb_per_second: Vec<f64>,
    /// Why the run does not count.
    pub(crate) invalid: Option<String>,
}

/// What a run beside a backup is compared with.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Beside {
    /// The same load without the backup, right before.
    pub(crate) alone_iops: f64,
    pub(crate) alone_p99_us: f64,
    /// The backup itself.
    pub(crate) stream_mb_per_second: f64,
}

impl Sample {
    /// What the load generator saw.
    pub(crate) fn of_report(report: &load::Report) -> Sample {
        let bytes = (report.total.ios * report.block_bytes) as f64;
        let us = report.total.latency_us;
        let target = report.target;
        let each = |storage_bytes: u64| storage_bytes as f64 / bytes.max(1.0);
        Sample {
            iops: report.total.iops,
            mb_per_second: report.total.mb_per_second,
            p50_us: us.p50,
            p99_us: us.p99,
            p999_us: us.p999,
            max_us: us.max,
            cpu_us_per_io: target.map_or(0.0, |target| target.cpu.us_per_io),
            cpu_us_per_mib: target.map_or(0.0, |target| target.cpu.seconds * 1e6 / (bytes / MIB).max(1e-9)),
            generator_cores: report.generator.cores,
            elsewhere_cores: target
                .map(|target| report.machine.cores - target.cpu.cores - report.generator.cores),
            drive_read: target.map(|target| each(target.storage_read_bytes)),
            drive_written: target.map(|target| each(target.storage_write_bytes)),
            ..Sample::default()
        }
    }

    /// What fio saw; the CPU is its own, which is the target's if there is none between it and the drive.
    pub(crate) fn of_fio(drive: &Drive) -> Sample {
        let us = drive.latency_us;
        Sample {
            iops: drive.iops,
            mb_per_second: drive.mb_per_second,
            p50_us: us.p50,
            p99_us: us.p99,
            p999_us: us.p999,
            max_us: us.max,
            generator_cores: drive.cpu.cores,
            ..Sample::default()
        }
        .with_cpu(drive.cpu.us_per_io)
    }

    pub(crate) fn with_cpu(self, us_per_io: f64) -> Sample {
        let bytes_per_io = self.mb_per_second * 1e6 / self.iops.max(1e-9);
        Sample { cpu_us_per_io: us_per_io, cpu_us_per_mib: us_per_io * MIB / bytes_per_io, ..self }
    }

    /// Takes what the drives did from the engine, which knows it better than the kernel does.
    pub(crate) fn with_engine(self, engine: &Engine) -> Sample {
        let bytes = (engine.written_bytes + engine.read_bytes).max(1) as f64;
        Sample {
            drive_read: Some(engine.drive_read_bytes as f64 / bytes),
            drive_written: Some(engine.drive_written_bytes as f64 / bytes),
            hit_ratio: engine.hit_ratio(),
            ..self
        }
    }
}

/// What is judged of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Bytes a second: of transfers of the same size the same as their rate.
    Rate,
    P99,
    CpuPerIo,
    CpuPerMib,
    /// Drive bytes read for each byte of the host's.
    DriveRead,
    /// Drive bytes written for each byte of the host's.
    DriveWritten,
    /// Of a long run: the rate before the wrap.
    EarlyRate,
    /// Of a long run: the rate long after the wrap.
    LateRate,
    /// Of a long run: drive bytes read for each byte of the host's, after the wrap.
    LateDriveRead,
    /// Of a run beside a backup: the p99 without it.
    AloneP99,
}

impl Figure {
    pub(crate) fn of(self, sample: &Sample) -> Option<f64> {
        let value = match self {
            Figure::Rate => sample.mb_per_second,
            Figure::P99 => sample.p99_us,
            Figure::CpuPerIo => sample.cpu_us_per_io,
            Figure::CpuPerMib => sample.cpu_us_per_mib,
            Figure::DriveRead => sample.drive_read?,
            Figure::DriveWritten => sample.drive_written?,
            Figure::EarlyRate => sample.parts?.early_mb_per_second,
            Figure::LateRate => sample.parts?.late_mb_per_second,
            Figure::LateDriveRead => sample.parts?.late_drive_read,
            Figure::AloneP99 => sample.beside?.alone_p99_us,
        };
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Cpu;
    use crate::stats::Percentiles;

    #[test]
    fn cpu_is_told_for_a_transfer_and_for_a_mebibyte() {
        let drive = Drive {
            iops: 1000.0,
            mb_per_second: 65.536,
            latency_us: Percentiles::default(),
            cpu: Cpu::new(0.5, 10_000, 10.0),
        };
        let sample = Sample::of_fio(&drive);
        assert_eq!(Figure::CpuPerIo.of(&sample), Some(50.0));
        assert!((sample.cpu_us_per_mib - 800.0).abs() < 1e-6);
        assert_eq!(Figure::LateRate.of(&sample), None);
    }

    #[test]
    fn drive_bytes_are_those_for_each_byte_of_the_host() {
        let engine = Engine {
            written_bytes: 100,
            read_bytes: 100,
            drive_read_bytes: 50,
            drive_written_bytes: 240,
            ..Engine::default()
        };
        let sample = Sample::default().with_engine(&engine);
        assert_eq!((sample.drive_read, sample.drive_written), (Some(0.25), Some(1.2)));
    }
}
