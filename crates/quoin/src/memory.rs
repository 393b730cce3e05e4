//! The memory limit: where it comes from, and what follows from it.

use quoin_base::GIB;
use quoin_cli::{Failure, parse_size, size_text};
use quoin_pool::{MemoryShares, PoolOptions};
use quoin_world::HUGE_PAGE_BYTES;
use quoin_world_linux::{HugePages, limit_huge_pages, reserve_huge_pages};
use std::fs;

/// The environment variable that stands for `--memory-limit`.
pub(crate) const MEMORY_LIMIT_VARIABLE: &str = "QUOIN_MEMORY_LIMIT";

/// The default limit, in bytes.
pub(crate) fn default_limit_bytes() -> u64 {
    default_limit(system_bytes())
}

/// The shares of `limit`, a size as people write it, or of the default; limits what the process keeps of buffers.
pub(crate) fn shares(limit: Option<&str>) -> Result<MemoryShares, Failure> {
    let limit_bytes = match limit {
        Some(text) => parse_limit(text)?,
        None => default_limit_bytes(),
    };
    let shares = MemoryShares::of_limit(limit_bytes);
    let huge_bytes = reserve_buffers(shares.spare_bytes as usize);
    quoin_world::limit_spare_bytes(shares.spare_bytes as usize - huge_bytes);
    tracing::info!(
        limit = size_text(limit_bytes),
        cache = size_text(shares.cache_bytes),
        buffer = size_text(shares.buffer_bytes),
        metadata = size_text(shares.metadata_bytes),
        "memory"
    );
    Ok(shares)
}

/// Sets three quarters of what is kept of buffers aside as huge pages, if the system lets buffers alone have them. How many
/// bytes that is.
fn reserve_buffers(spare_bytes: usize) -> usize {
    match limit_huge_pages() {
        Ok(HugePages::Advised) => {}
        Ok(HugePages::Disabled) => {
            tracing::info!("no huge pages: this kernel cannot keep them to buffers; Linux 6.18 can");
            return 0;
        }
        Ok(HugePages::Never) => {
            tracing::info!(
                "no huge pages: the system gives none; large transfers are faster if \
                 /sys/kernel/mm/transparent_hugepage/enabled says madvise"
            );
            return 0;
        }
        Err(error) => {
            tracing::warn!(%error, "huge pages stay enabled; expect pauses of some milliseconds");
            return 0;
        }
    }
    let huge_bytes = spare_bytes * 3 / 4 / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    match reserve_huge_pages(huge_bytes) {
        Ok(()) => huge_bytes,
        Err(error) => {
            tracing::warn!(%error, "no huge pages for buffers: large transfers are slower");
            0
        }
    }
}

fn parse_limit(text: &str) -> Result<u64, Failure> {
    let least = PoolOptions::LEAST_MEMORY_BYTES;
    let refuse = |why: String| {
        let next = format!("write a size of at least {}, such as 2GiB", size_text(least));
        Failure::new("array not started", format!("memory_limit {text}"), why, next)
    };
    let bytes = parse_size(text).map_err(refuse)?.0;
    if bytes < least {
        Err(refuse(format!("the array cannot work in {}", size_text(bytes))))
    } else {
        Ok(bytes)
    }
}

/// A quarter of the system's RAM, at most 4 GiB.
fn default_limit(system_bytes: Option<u64>) -> u64 {
    system_bytes.map_or(GIB, |bytes| (bytes / 4).min(4 * GIB)).max(PoolOptions::LEAST_MEMORY_BYTES)
}

/// The system's RAM, if it can be read.
fn system_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim();
    Some(kib.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_base::MIB;

    #[test]
    fn the_limit_is_a_size_that_suffices_or_a_part_of_the_system() {
        assert_eq!(parse_limit("256MiB").unwrap(), 256 * MIB);
        for (text, why) in [("63M", "cannot work in 63.0 MiB"), ("much", "is not a size")] {
            let failure = parse_limit(text).unwrap_err();
            assert!(format!("{failure:?}").contains(why), "{failure:?}");
        }
        assert_eq!(default_limit(Some(8 * GIB)), 2 * GIB);
        assert_eq!(default_limit(Some(64 * GIB)), 4 * GIB);
        assert_eq!(default_limit(Some(100 * MIB)), PoolOptions::LEAST_MEMORY_BYTES);
        assert!(system_bytes().is_some_and(|bytes| bytes > 100 * MIB));
    }
}
