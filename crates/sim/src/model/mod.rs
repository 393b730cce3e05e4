//! What the pool must remember: a history of every sector, and of the catalog.

mod catalog;
mod history;

pub(crate) use catalog::{CatalogModel, Change, OBJECT_KINDS, volume_key};
#[cfg(test)]
use history::OpId;
pub(crate) use history::{History, Window};

#[cfg(test)]
mod tests;
