//! The array by its public interface, over real drives and in the simulated world.

mod array;
mod audit;
mod compression;
mod copies;
mod deduplication;
mod events;
mod groups;
mod guards;
mod history;
mod host_settings;
mod immutable;
mod lab;
mod layouts;
mod modified;
mod organised;
mod portals;
mod qos;
mod recycle_bin;
mod reduce;
mod requests;
mod reserves;
mod schedules;
mod snapshots;
mod volumes;
mod years;
