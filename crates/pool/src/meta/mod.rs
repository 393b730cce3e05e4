//! Metadata: pages, the page map that finds them, and the tables and trees kept in them.

mod catalog;
mod image;
mod pages;
mod reader;
mod segments;

pub(crate) use catalog::{Catalog, DECISION_OBJECT, Operation, TransactionId};
pub use catalog::{ObjectKind, Transaction};
pub(crate) use image::{Alias, CatalogImage, DeadList, LayerImage};
pub(crate) use pages::{Page, PageId, PageStore};
pub(crate) use segments::{Segment, SegmentState, SegmentTable, Stream, encode as encode_segment};
