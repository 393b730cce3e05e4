//! What the pool must remember: a history of every sector, and of the catalog.

mod catalog;
mod history;

pub(crate) use catalog::{CatalogModel, Change, OBJECT_KINDS, volume_key};
pub use history::{History, OpId, Place, Window};

#[cfg(test)]
mod tests;
