//! The metadata of a slice: its pages, its catalog and where the records of that lie, and the newest durable root.
//!
//! Locks are taken in this order: layers, objects of the catalog, records. Only this file holds the last two at the same time,
//! and callers show that they hold the layers.

use crate::{
    bugs::{Bug, planted},
    fork::layers::Layers,
    format::Root,
    meta::{
        Catalog, CatalogHead, Objects, PageStore, PageWords, RecordHeap, RecordKey, encode_alias,
        encode_layer, encode_object,
    },
};
use quoin_base::PageNumber;
use quoin_world::{Mutex, atomic::Ordering};

/// The metadata of a slice.
pub(crate) struct Metadata {
    pub(crate) pages: PageStore,
    pub(crate) catalog: Catalog,
    /// Where what a checkpoint records of catalog and layers lies.
    records: Mutex<RecordHeap>,
    /// The newest durable root.
    root: Mutex<Root>,
}

/// What a root says of the catalog, and the pages that lead there. `None` for a page that goes.
pub(crate) type CatalogCut = (CatalogHead, Vec<(PageNumber, Option<PageWords>)>);

/// Pages of the catalog, about.
#[derive(Clone, Copy)]
pub(crate) struct CatalogPages {
    /// All their numbers are below.
    pub end: u64,
    /// How many a checkpoint would write now.
    pub due: u64,
}

impl Metadata {
    pub(crate) fn new(pages: PageStore, catalog: Catalog, records: RecordHeap, root: Root) -> Self {
        Self { pages, catalog, records: Mutex::new(records), root: Mutex::new(root) }
    }

    pub(crate) fn root(&self) -> Root {
        *self.root.lock()
    }

    /// Notes that a newer root is hardened.
    pub(crate) fn root_hardened(&self, root: Root) {
        *self.root.lock() = root;
    }

    /// The pages of the catalog that hold what changed, as of the moment at which the caller locked the layers.
    pub(crate) fn cut_catalog(&self, layers: &Layers) -> CatalogCut {
        self.with_records(layers, |records, objects| {
            let encode = |key: &RecordKey| encode_record(layers, objects, key);
            let pages = records.cut(encode);
            debug_assert!(
                records.is_cut_of(layers.all.len() + layers.aliases().len() + objects.count(), encode),
                "the catalog's pages do not hold the catalog"
            );
            let head = CatalogHead {
                pages_end: records.pages_end(),
                records: records.count(),
                next_layer: layers.ids.next(),
                copies: layers.copies.load(Ordering::Relaxed),
                applied: layers.applied,
            };
            (head, pages)
        })
    }

    /// The pages that the catalog takes, and those that a checkpoint would write now.
    pub(crate) fn catalog_pages(&self, layers: &Layers) -> CatalogPages {
        self.with_records(layers, |records, _| CatalogPages {
            end: records.pages_end(),
            due: records.due_pages(),
        })
    }

    /// Has the next checkpoint make a page of the catalog anew. False if it holds no record.
    pub(crate) fn rewrite_catalog_page(&self, index: PageNumber) -> bool {
        self.records.lock().rewrite(index)
    }

    /// Whether the next checkpoint makes a page of the catalog anew.
    pub(crate) fn is_catalog_page_due(&self, index: PageNumber) -> bool {
        self.records.lock().is_due(index)
    }

    /// Locks objects and records, once the records know what changed.
    fn with_records<T>(&self, layers: &Layers, look: impl FnOnce(&mut RecordHeap, &Objects) -> T) -> T {
        let mut objects = self.catalog.lock();
        let mut records = self.records.lock();
        note_changes(&mut records, layers, &mut objects);
        look(&mut records, &objects)
    }
}

/// Tells the heap which records changed since it was last told.
fn note_changes(records: &mut RecordHeap, layers: &Layers, objects: &mut Objects) {
    let (changed, aliases) = layers.changes().take();
    changed.into_iter().for_each(|id| records.note(RecordKey::Layer(id)));
    aliases.into_iter().for_each(|id| records.note(RecordKey::Alias(id)));
    for (kind, key) in objects.take_changed() {
        records.note(RecordKey::Object(kind, key.into()));
    }
}

/// A record of the catalog, if there is one.
fn encode_record(layers: &Layers, objects: &Objects, key: &RecordKey) -> Option<Vec<u8>> {
    match key {
        RecordKey::Layer(id) => {
            let mut image = layers.all.get(id)?.image();
            image.gone &= !planted(Bug::ResurrectVolumes);
            Some(encode_layer(&image))
        }
        RecordKey::Alias(id) => Some(encode_alias(*id, layers.alias(*id)?)),
        RecordKey::Object(kind, key) => Some(encode_object(*kind, key, objects.get(*kind, key)?)),
    }
}
