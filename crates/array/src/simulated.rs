//! An array on drives of a simulated world, for tests.

use crate::{Array, ArrayOptions, SpacePercents};
use quoin_base::MIB;
use quoin_drive::Roles;
use quoin_pool::{FormatOptions, NewDrive, PoolOptions};
use quoin_target::Target;
use quoin_world::Disk;
use quoin_world_sim::{SimDisk, SimOptions, SimWorld};
use std::sync::Arc;

const IQN: &str = "iqn.2026-11.io.quoin:sim";

/// An array whose pool is on so many new drives, each a fault domain of its own. It does not run yet.
pub(crate) fn array(
    drives: usize,
    drive_bytes: u64,
    format: FormatOptions,
) -> (Arc<SimWorld>, Vec<Arc<SimDisk>>, Arc<Array>) {
    let world = SimWorld::new(1, SimOptions::default());
    let disks: Vec<_> = (0..drives).map(|at| world.disk(&format!("d{at}"), drive_bytes)).collect();
    let (inner, made) = (world.clone(), disks.clone());
    let formatted = async move {
        let roles = Roles { journal: true, data: true };
        let drives = made.into_iter().map(|disk| NewDrive::alone(disk, roles)).collect();
        let format = FormatOptions { slab_bytes: MIB as u32, row_bytes: 64 << 10, ..format };
        quoin_pool::format(&*inner, drives, format).await.unwrap()
    };
    let options = ArrayOptions {
        name: "sim".into(),
        pool: world.run(formatted).unwrap(),
        iqn: IQN.into(),
        version: "0".into(),
        nbd: Vec::new(),
        pool_options: PoolOptions { cache_bytes: 0, ..PoolOptions::default() },
        space: SpacePercents::default(),
        spare_domains: 0,
    };
    let bay: Vec<_> = disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    let array = Array::new(world.clone(), Box::new(bay), Target::new(IQN), options);
    (world, disks, array)
}
