//! What is emulated: a technology with the figures of its data sheets, and what is to be different.
//!
//! The figures of a technology are those of the middle of data sheets of drives for servers; `docs/emulated-drives.md` says
//! which.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr, time::Duration};

/// The highest figures that can be asked for.
const MOST_IOPS: u32 = 10_000_000;
const MOST_MBPS: u32 = 100_000;
const LONGEST_MS: f64 = 10_000.0;

/// A kind of drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Technology {
    /// A solid-state drive behind SATA or SAS.
    #[serde(rename = "flash")]
    Flash,
    /// A solid-state drive behind PCI Express.
    #[serde(rename = "nvme")]
    Nvme,
    /// A disk of 15,000 revolutions a minute.
    #[serde(rename = "15k")]
    Rpm15k,
    /// A disk of 10,000 revolutions a minute.
    #[serde(rename = "10k")]
    Rpm10k,
    /// A disk of 7,200 revolutions a minute, also called nearline.
    #[serde(rename = "7.2k")]
    Rpm7k2,
}

impl Technology {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Flash, Self::Nvme, Self::Rpm15k, Self::Rpm10k, Self::Rpm7k2];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flash => "flash",
            Self::Nvme => "nvme",
            Self::Rpm15k => "15k",
            Self::Rpm10k => "10k",
            Self::Rpm7k2 => "7.2k",
        }
    }

    /// Whether it has heads that move and platters that turn.
    pub const fn rotates(self) -> bool {
        matches!(self, Self::Rpm15k | Self::Rpm10k | Self::Rpm7k2)
    }

    /// Random operations a second, their latency in microseconds, and 10^6 bytes a second.
    const fn figures(self) -> (u32, u64, u32) {
        match self {
            Self::Flash => (75_000, 100, 500),
            Self::Nvme => (500_000, 80, 5_000),
            Self::Rpm15k => (180, 5_500, 150),
            Self::Rpm10k => (140, 7_000, 150),
            Self::Rpm7k2 => (80, 12_500, 180),
        }
    }
}

impl fmt::Display for Technology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Technology {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|technology| technology.name() == text);
        let names = Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("{text:?} is not a technology; write one of {names}"))
    }
}

/// A time in milliseconds with up to three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliseconds {
    us: u64,
}

impl Milliseconds {
    /// So many microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self { us }
    }

    /// The time, as a number of milliseconds; `None` unless it is from a thousandth to ten thousand.
    pub fn new(ms: f64) -> Option<Self> {
        let us = (ms * 1000.0).round();
        (ms <= LONGEST_MS && us >= 1.0).then_some(Self { us: us as u64 })
    }

    /// The number of milliseconds.
    pub fn as_f64(self) -> f64 {
        self.us as f64 / 1000.0
    }

    /// The time.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.us)
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        Self::new(ms).ok_or_else(|| serde::de::Error::custom("latency_ms is not from 0.001 to 10000"))
    }
}

/// A technology, and what differs from its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// The kind of drive.
    pub technology: Technology,
    /// Random operations of 4 KiB a second, however many are asked for at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// The latency of one random operation of 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Milliseconds>,
    /// 10^6 bytes a second of large sequential operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbps: Option<u32>,
}

impl Emulation {
    /// A technology with the figures of its data sheets.
    pub const fn of(technology: Technology) -> Self {
        Self { technology, iops: None, latency_ms: None, mbps: None }
    }

    /// Random operations of 4 KiB a second.
    pub fn iops(&self) -> u32 {
        self.iops.unwrap_or(self.technology.figures().0)
    }

    /// The latency of one random operation of 4 KiB.
    pub fn latency(&self) -> Milliseconds {
        self.latency_ms.unwrap_or(Milliseconds::from_us(self.technology.figures().1))
    }

    /// 10^6 bytes a second.
    pub fn mbps(&self) -> u32 {
        self.mbps.unwrap_or(self.technology.figures().2)
    }

    /// What is wrong with a figure, if any is out of range.
    pub fn problem(&self) -> Option<String> {
        if !(1..=MOST_IOPS).contains(&self.iops()) {
            return Some(format!("iops is {}: it is from 1 to {MOST_IOPS}", self.iops()));
        }
        if !(1..=MOST_MBPS).contains(&self.mbps()) {
            return Some(format!("mbps is {}: it is from 1 to {MOST_MBPS}", self.mbps()));
        }
        None
    }

    /// What people read about it: `15k 180 IOPS 5.5 ms 150 MB/s`.
    pub fn text(&self) -> String {
        format!("{} {} IOPS {} ms {} MB/s", self.technology, self.iops(), self.latency(), self.mbps())
    }
}

impl FromStr for Emulation {
    type Err = String;

    /// As on the command line: `15k`, or `15k,iops=180,latency_ms=5.5,mbps=150`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let mut emulation = Self::of(parts.next().unwrap_or_default().parse()?);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
            let number = || value.parse().map_err(|_| format!("{key} is {value:?}: it is a whole number"));
            match key {
                "iops" => emulation.iops = Some(number()?),
                "mbps" => emulation.mbps = Some(number()?),
                "latency_ms" => {
                    let ms = value.parse().ok().and_then(Milliseconds::new);
                    let ms = ms.ok_or_else(|| format!("latency_ms is {value:?}: it is from 0.001 to 10000"));
                    emulation.latency_ms = Some(ms?);
                }
                _ => return Err(format!("there is no {key:?}; write iops, latency_ms or mbps")),
            }
        }
        emulation.problem().map_or(Ok(emulation), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let whole: Emulation = "15k,iops=200,latency_ms=4.25,mbps=170".parse().unwrap();
        assert_eq!(whole.text(), "15k 200 IOPS 4.25 ms 170 MB/s");
        for technology in Technology::ALL {
            let plain: Emulation = technology.name().parse().unwrap();
            assert_eq!((plain, plain.problem()), (Emulation::of(technology), None));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("16k", "one of flash, nvme, 15k, 10k, 7.2k"),
            ("", "is not a technology"),
            ("15k,iops", "is not KEY=VALUE"),
            ("15k,iops=0", "iops is 0: it is from 1"),
            ("15k,iops=fast", "whole number"),
            ("15k,latency_ms=0", "latency_ms is \"0\""),
            ("15k,latency_ms=NaN", "latency_ms is \"NaN\""),
            ("15k,mbps=200000", "mbps is 200000"),
            ("15k,cache=1", "there is no \"cache\""),
        ] {
            let error = text.parse::<Emulation>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
