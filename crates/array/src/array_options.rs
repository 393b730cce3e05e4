//! The settings with which an array starts.

use crate::SpacePercents;
use quoin_base::PoolId;
use quoin_pool::PoolOptions;

/// The settings with which an array starts.
#[derive(Clone, Debug)]
pub struct ArrayOptions {
    /// What people call it.
    pub name: String,
    /// The identity of its pool; drives of another are refused.
    pub pool: PoolId,
    /// The target's iSCSI name.
    pub iqn: String,
    /// The version of the software, to report.
    pub version: String,
    /// Addresses at which NBD is served, to report.
    pub nbd: Vec<String>,
    /// How its pool is opened.
    pub pool_options: PoolOptions,
    /// When there is something to say about its space.
    pub space: SpacePercents,
    /// Fault domains that its pool keeps spare, unless something else was set in the pool.
    pub spare_domains: u8,
}
