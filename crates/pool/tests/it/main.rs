//! The pool by its public interface, on simulated drives: what hosts wrote is there after whatever happens.

mod add_drive;
mod ahead;
mod allocation;
mod cache;
mod catalog;
mod clean;
mod copy;
mod cut;
mod domains;
mod dropped;
mod flipped;
mod freed;
mod grants;
mod layer_ids;
mod life;
mod overwrites;
mod pipeline;
mod placed;
mod pressure;
mod reserved;
mod rig;
mod shortage;
mod slices;
mod snapshot;
mod space;
mod takeover;
