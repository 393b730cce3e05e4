//! The properties that a new volume is asked for with, and their rules.

use crate::{Folder, Tags, VolumeError, check_name, check_tags, limits::MAX_SIZE_BYTES};
use quoin_base::{Compression, Layout};

/// The properties of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its name; see [`check_name`].
    pub name: String,
    /// Its size in bytes: a multiple of the block, at most [`MAX_SIZE_BYTES`].
    pub size_bytes: u64,
    /// Its logical block: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// The pool keeps space for all of it.
    pub thick: bool,
    /// Its tags.
    pub tags: Tags,
    /// Where people keep it.
    pub folder: Folder,
    /// What the array does for it: as its policy says, or as was said for it alone.
    pub policy: Assigned,
}

/// A policy, as a volume gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// Its name; `None`: the default one.
    pub name: Option<String>,
    /// What the volume is laid out as; `None`: as the pool.
    pub layout: Option<Layout>,
    /// Whether the pool keeps space for all of the volume; `None`: the policy does not say.
    pub thick: Option<bool>,
    /// How what is written to the volume is compressed; `None`: the policy does not say.
    pub compression: Option<Compression>,
    /// Whether what is written to the volume is deduplicated; `None`: the policy does not say.
    pub deduplication: Option<bool>,
}

impl VolumeSpec {
    /// Checks everything that can be said without knowing the other volumes.
    ///
    /// # Errors
    /// [`VolumeError::Name`], [`VolumeError::BlockSize`], [`VolumeError::Tag`] or [`VolumeError::Size`]: the
    /// first that is wrong.
    pub fn check(&self) -> Result<(), VolumeError> {
        check_name(&self.name)?;
        if ![512, 4096].contains(&self.block_bytes) {
            return Err(VolumeError::BlockSize { name: self.name.clone(), block_bytes: self.block_bytes });
        }
        check_tags(&self.tags)?;
        check_size(&self.name, self.size_bytes, self.block_bytes)
    }
}

/// Checks the size of a volume with a block of `block_bytes`.
pub(crate) fn check_size(name: &str, size_bytes: u64, block_bytes: u32) -> Result<(), VolumeError> {
    let why = match size_bytes {
        0 => "is nothing",
        size if !size.is_multiple_of(u64::from(block_bytes)) => "is not a whole number of blocks",
        size if size > MAX_SIZE_BYTES => "is too large",
        _ => return Ok(()),
    };
    Err(VolumeError::Size { name: name.to_owned(), size_bytes, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_refused_for_what_is_wrong_with_it() {
        let spec = |size_bytes, block_bytes| {
            let (name, tags, folder) = ("v".into(), Tags::new(), Folder::default());
            let policy = Assigned::default();
            VolumeSpec { name, size_bytes, block_bytes, thick: false, tags, folder, policy }.check()
        };
        assert!(spec(4096, 4096).is_ok());
        assert!(spec(MAX_SIZE_BYTES, 512).is_ok());
        for (size, block, said) in [
            (0, 512, "is nothing"),
            (512, 4096, "not a whole number of blocks"),
            (MAX_SIZE_BYTES + 512, 512, "is too large; choose a multiple of the block of up to 64 TiB"),
            (8192, 1024, "choose 512 or 4096"),
        ] {
            let error = spec(size, block).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
