//! The question of `quoin init --force` before it overwrites pools: a pool that holds immutable snapshots, or may hold
//! some, is overwritten only if the user types its name.

use quoin_array::immutable_snapshots;
use quoin_base::PoolId;
use quoin_cli::Failure;
use quoin_drive::{Probe, inspect_set, probe};
use quoin_pool::read_catalog;
use quoin_world::Disk;
use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Write},
    sync::Arc,
};

/// A pool that is not to be overwritten by mistake.
pub(crate) struct Kept {
    pool: PoolId,
    name: String,
    why: String,
}

/// Which pools on these disks may hold immutable snapshots.
pub(crate) async fn kept_pools(disks: &[Arc<dyn Disk>]) -> Vec<Kept> {
    let mut pools: BTreeMap<PoolId, (String, Vec<Arc<dyn Disk>>)> = BTreeMap::new();
    for disk in disks {
        // A drive without a sound label belongs to no pool whose snapshots could ever be read again.
        if let Ok(Probe::Quoin(label)) = probe(disk).await {
            pools.entry(label.pool).or_insert_with(|| (label.pool_name, Vec::new())).1.push(disk.clone());
        }
    }
    let mut kept = Vec::new();
    for (pool, (name, disks)) in pools {
        // A pool that cannot be read may hold some, so it is kept too.
        let why = match immutable_in(disks).await {
            Ok(names) if names.is_empty() => continue,
            Ok(names) => format!("holds {} immutable snapshots: {}", names.len(), names.join(", ")),
            Err(why) => format!("may hold immutable snapshots: {why}"),
        };
        kept.push(Kept { pool, name, why });
    }
    kept
}

async fn immutable_in(disks: Vec<Arc<dyn Disk>>) -> Result<Vec<String>, String> {
    let drives = inspect_set(disks).await.map_err(|error| error.to_string())?;
    let objects = read_catalog(drives).await.map_err(|error| error.to_string())?;
    immutable_snapshots(&objects).map_err(|error| error.to_string())
}

/// Refuses unless the name of each of the pools is among `names`, or is typed.
pub(crate) fn require_names(kept: &[Kept], names: &[String]) -> Result<(), Failure> {
    for Kept { pool, name, why } in kept {
        if names.contains(name) || names.is_empty() && is_typed(name, why) {
            continue;
        }
        let next = "choose other drives; or, to destroy all data in the pool, add --pool-name with its name";
        let why = format!("pool {name} ({pool}) {why}");
        return Err(Failure::new("array not created", format!("pool {name}"), why, next));
    }
    Ok(())
}

/// Asks on the terminal, if there is one.
fn is_typed(name: &str, why: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    let asked = write!(io::stderr(), "pool {name} {why}\ntype its name to destroy all its data: ");
    let mut line = String::new();
    asked.is_ok() && io::stdin().lock().read_line(&mut line).is_ok() && line.trim_end_matches('\n') == name
}
