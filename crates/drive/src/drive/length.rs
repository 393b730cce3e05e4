//! How long a drive is, the grant pages that tell of its slabs, and how it becomes longer while it is open.
//!
//! A drive is as long as its label says. What its file or device has beyond that is not used, so that it may have become longer at
//! any time. One that is shorter than its label says is refused.
//!
//! A drive grows in steps, each of which is durable before the next one: its end is blanked, its grant pages for the new slabs are
//! written, both copies, and then its labels with the new length, one copy after the other. So whichever label counts, the grant
//! pages that it asks for are there. All of it can be done again.

use super::Drive;
use crate::{DriveError, GRANT_PAGE_BYTES, Label, probe::tail};
use quoin_world::{
    Buf,
    atomic::Ordering::{AcqRel, Acquire},
};

impl Drive {
    /// Whole slabs that fit, those of the journal included. They become more when the drive [grows](Drive::lengthen).
    pub fn slabs(&self) -> u32 {
        self.state.slabs.load(Acquire)
    }

    /// How many bytes its file or device has by now; more than the label says, if it became longer.
    pub fn measure(&self) -> u64 {
        self.disk.measure()
    }

    /// The label that it has once it is so long.
    pub fn label_of(&self, len_bytes: u64) -> Label {
        Label { len_bytes, ..self.label() }
    }

    /// Blanks the end that its file or device has now, where traces of something else may be, durably. It lies behind the slabs
    /// that the label tells of, by a slab at least.
    ///
    /// # Errors
    /// Those of [`Drive::write_root`].
    pub async fn blank_end(&self) -> Result<(), DriveError> {
        let (start, len) = tail(&self.disk);
        self.write_at(start, vec![Buf::zeroed(len as usize).into_slice()], true).await
    }

    /// Makes it so long as its file or device is, at the most, durably: on return both labels say so, and its new slabs can be read
    /// and written. Their grant pages are there.
    ///
    /// # Errors
    /// [`DriveError::Shrunk`] if its file or device is shorter, or that would make the drive shorter; [`DriveError::BadLabel`] if
    /// there is no room for the grant pages: nothing changed then. Errors of writing the labels are those of
    /// [`Drive::raise_epoch`]: the drive may be longer or not.
    pub async fn lengthen(&self, len_bytes: u64) -> Result<(), DriveError> {
        let _one_at_a_time = self.state.relabelling.lock().await;
        let mut label = self.label();
        let drive = || self.name().to_owned();
        if len_bytes < label.len_bytes {
            return Err(DriveError::Shrunk { drive: drive(), found: len_bytes, expected: label.len_bytes });
        }
        let found = self.measure();
        if found < len_bytes {
            return Err(DriveError::Shrunk { drive: drive(), found, expected: len_bytes });
        }
        label.len_bytes = len_bytes;
        label.generation = label.generation.next();
        if let Some(why) = label.problem() {
            return Err(DriveError::BadLabel { drive: drive(), why });
        }
        self.write_labels(&label, None).await?;
        // NOTE: the label first. Who sees a slab finds its grant page in it.
        let slabs = label.slabs();
        *self.state.label.lock() = label;
        self.state.slabs.fetch_max(slabs, AcqRel);
        Ok(())
    }

    /// Both copies of a grant page, whatever is in them, or why one cannot be read.
    ///
    /// # Errors
    /// Of each copy its own: [`DriveError::Disk`] if the disk fails to read it.
    pub async fn read_grant_page(&self, page: u32) -> [Result<Buf, DriveError>; 2] {
        let label = self.label();
        assert!(page < label.grant_pages(), "a drive has its grant pages and no others");
        let [first, second] =
            [0, 1].map(|copy| self.read_at(label.grant_page_offset(page, copy), GRANT_PAGE_BYTES));
        [first.await, second.await]
    }

    /// Writes one copy, 0 or 1, of a grant page durably, also of one for slabs that it is to get. `bytes` must be
    /// [`GRANT_PAGE_BYTES`] long.
    ///
    /// # Errors
    /// Those of [`Drive::write_root`].
    pub async fn write_grant_page(&self, page: u32, copy: usize, bytes: Buf) -> Result<(), DriveError> {
        let label = self.label();
        assert!(page < label.most_grant_pages() && copy < 2, "there is room for a grant page");
        assert_eq!(bytes.len(), GRANT_PAGE_BYTES, "a grant page is written whole");
        self.write_at(label.grant_page_offset(page, copy), vec![bytes.into_slice()], true).await
    }
}
