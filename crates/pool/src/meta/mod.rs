//! Metadata: pages, the page map that finds them, and the tables and trees kept in them.

mod at_hand;
mod catalog;
mod heap;
mod image;
mod laid;
mod layer_image;
mod layouts;
pub(crate) mod metadata;
mod object;
mod page_id;
mod pages;
mod reader;
mod records;
mod segments;

pub(crate) use at_hand::AtHand;
pub use catalog::Transaction;
pub(crate) use catalog::{Catalog, Objects, Operation, TransactionId};
pub(crate) use heap::{PageWords, RecordHeap};
pub(crate) use image::{CatalogHead, CatalogImage};
pub(crate) use laid::Laid;
pub(crate) use layer_image::{Alias, LayerImage};
pub(crate) use layouts::{Domain, Layouts, SpareDomains, net_slabs};
pub(crate) use object::DECISION_OBJECT;
pub use object::ObjectKind;
pub(crate) use page_id::PageId;
pub(crate) use pages::{Page, PageStore};
pub(crate) use records::{RecordKey, encode_alias, encode_layer, encode_object};
pub(crate) use segments::balance::{DriveUse, emptiest, is_uneven, percents};
pub(crate) use segments::{
    ColumnMove, Holdings, Losses, LostNow, NetUse, Segment, SegmentState, SegmentTable, Stream, TableCopy,
    TableSlabs, least_table_slabs, table_slabs_for,
};
