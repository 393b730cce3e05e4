//! Metadata: pages, the page map that finds them, and the tables and trees kept in them.

mod at_hand;
mod catalog;
mod heap;
mod image;
mod pages;
mod reader;
mod records;
mod segments;

pub(crate) use at_hand::AtHand;
pub(crate) use catalog::{Catalog, DECISION_OBJECT, Objects, Operation, TransactionId};
pub use catalog::{ObjectKind, Transaction};
pub(crate) use heap::{PageWords, RecordHeap};
pub(crate) use image::{Alias, CatalogHead, CatalogImage, DeadList, LayerImage};
pub(crate) use pages::{Page, PageId, PageStore};
pub(crate) use records::{RecordKey, encode_alias, encode_layer, encode_object};
pub(crate) use segments::{
    Segment, SegmentState, SegmentTable, Stream, TABLE_COPIES, TableSlabs, least_table_slabs, table_slabs_for,
};
