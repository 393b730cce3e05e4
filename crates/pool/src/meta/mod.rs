//! Metadata: pages, the page map that finds them, and the tables and trees kept in them.

mod catalog;
mod pages;
mod segments;

pub(crate) use catalog::{Catalog, CatalogImage, LayerImage, Operation};
pub use catalog::{ObjectKind, Transaction};
pub(crate) use pages::{Page, PageId, PageStore};
pub(crate) use segments::{Segment, SegmentState, SegmentTable, Stream, encode as encode_segment};
