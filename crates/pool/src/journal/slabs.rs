//! The slabs that hold an extent: its columns, each on a drive of its own and all alike.

use super::unread::read_patiently;
use crate::{
    format::{ExtentColumn, PAGE_BYTES},
    store::Store,
};
use futures_util::future::join_all;
use quoin_base::DriveIndex;
use quoin_drive::MOST_JOURNAL_COLUMNS;
use quoin_stripe::{Column, StripeError};
use quoin_world::Slice as Bytes;
use std::{ops::Deref, sync::Arc};

/// From one to four slabs of different drives. What is written to one is written to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slabs {
    count: u8,
    all: [Column; MOST_JOURNAL_COLUMNS as usize],
}

impl Slabs {
    /// `None` if there are none, too many, or two on the same drive.
    pub(crate) fn new(columns: &[Column]) -> Option<Self> {
        let first = *columns.first()?;
        let is_alone = |(i, column): (usize, &Column)| columns[..i].iter().all(|c| c.drive != column.drive);
        let mut all = [first; MOST_JOURNAL_COLUMNS as usize];
        all.get_mut(..columns.len())?.copy_from_slice(columns);
        columns.iter().enumerate().all(is_alone).then_some(Self { count: columns.len() as u8, all })
    }

    pub(crate) fn one(column: Column) -> Self {
        Self { count: 1, all: [column; MOST_JOURNAL_COLUMNS as usize] }
    }

    /// The slabs for which `is_kept` is true; `None` if there is none.
    pub(crate) fn only(&self, is_kept: impl Fn(Column) -> bool) -> Option<Self> {
        Self::new(&self.iter().copied().filter(|column| is_kept(*column)).collect::<Vec<_>>())
    }

    /// Encodes them for an extent's header.
    pub(crate) fn encode(&self) -> [ExtentColumn; MOST_JOURNAL_COLUMNS as usize] {
        let mut told = [ExtentColumn::default(); MOST_JOURNAL_COLUMNS as usize];
        for (told, column) in told.iter_mut().zip(self.iter()) {
            (told.drive, told.slab) = (column.drive.0.into(), column.slab.into());
        }
        told
    }

    /// Decodes what a header names; `None` if no extent can have such slabs.
    pub(crate) fn decode(count: u32, told: &[ExtentColumn]) -> Option<Self> {
        let told = told.get(..count as usize)?;
        let column = |c: &ExtentColumn| Column { drive: DriveIndex(c.drive.get()), slab: c.slab.get() };
        Self::new(&told.iter().map(column).collect::<Vec<_>>())
    }
}

impl Deref for Slabs {
    type Target = [Column];

    fn deref(&self) -> &[Column] {
        &self.all[..usize::from(self.count)]
    }
}

/// Writes to all columns at once. Returns the columns that failed.
pub(super) async fn write_columns(
    store: &Store,
    slabs: &[Column],
    offset: u64,
    data: Vec<Bytes>,
    durable: bool,
) -> Vec<(Column, StripeError)> {
    if let [column] = slabs {
        let written = store.write_slab(*column, offset, data, durable).await;
        return written.err().map(|error| (*column, error)).into_iter().collect();
    }
    let write = |column: &Column| {
        let write = store.write_slab(*column, offset, data.clone(), durable);
        let column = *column;
        async move { write.await.err().map(|error| (column, error)) }
    };
    join_all(slabs.iter().map(write)).await.into_iter().flatten().collect()
}

/// Where a record's payload lies: in each of the columns.
#[derive(Clone, Debug)]
pub(crate) struct JournalPlace {
    /// Shared by all that was written to the extent.
    pub slabs: Arc<Slabs>,
    pub offset: u64,
}

impl JournalPlace {
    /// The first column, for messages.
    pub(crate) fn column(&self) -> Column {
        self.slabs[0]
    }

    pub(crate) fn plus(&self, bytes: u64) -> Self {
        Self { slabs: self.slabs.clone(), offset: self.offset + bytes }
    }

    /// Reads `len` bytes from the first column where `is_good` accepts them. `Ok(None)`: some column can be
    /// read, and none is good. An error: no column can be read.
    pub(crate) async fn read(
        &self,
        store: &Store,
        len: u64,
        is_good: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Bytes>, StripeError> {
        let page = PAGE_BYTES as u64;
        let (from, to) = (self.offset / page * page, (self.offset + len).next_multiple_of(page));
        let (mut is_wrong, mut unread) = (false, None);
        for column in self.slabs.iter() {
            match read_patiently(store, *column, from, (to - from) as usize).await {
                Ok(bytes) => {
                    let start = (self.offset - from) as usize;
                    let bytes = bytes.into_slice().slice(start..start + len as usize);
                    if is_good(&bytes) {
                        return Ok(Some(bytes));
                    }
                    is_wrong = true;
                }
                Err(error) => unread = unread.or(Some(error)),
            }
        }
        match unread {
            Some(error) if !is_wrong => Err(error),
            _ => Ok(None),
        }
    }
}
