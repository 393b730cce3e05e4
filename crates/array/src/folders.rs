//! Folders of volumes.

use crate::{Array, ArrayError};
use quoin_api as api;
use quoin_volume::{BlockDevice, Folder, Volume};
use std::collections::BTreeMap;

impl Array {
    /// The folders there are, each behind the one it lies in; the top first.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_folders(&self) -> Result<Vec<api::Folder>, ArrayError> {
        self.require_catalog()?;
        let of_volume = |volume: &Volume| (volume.folder(), volume.size_bytes(), volume.mapped_bytes());
        Ok(folders(self.volumes().list().iter().map(|volume| of_volume(volume))))
    }
}

/// The folders of volumes; each volume is given by its folder, size and mapped bytes.
fn folders(volumes: impl Iterator<Item = (Folder, u64, Option<u64>)>) -> Vec<api::Folder> {
    let empty = |path: &Folder| api::Folder {
        path: if path.is_top() { "/".to_owned() } else { path.to_string() },
        volumes: 0,
        volumes_below: 0,
        size_bytes: 0,
        mapped_bytes: Some(0),
    };
    // A path as the list of its names sorts what lies below a folder right behind it.
    let key = |path: &Folder| path.as_str().split('/').map(str::to_owned).collect::<Vec<_>>();
    let top = Folder::default();
    let mut found = BTreeMap::from([(key(&top), empty(&top))]);
    for (own, size_bytes, mapped_bytes) in volumes {
        for path in own.path() {
            let folder = found.entry(key(&path)).or_insert_with(|| empty(&path));
            folder.volumes += u64::from(path == own);
            folder.volumes_below += 1;
            folder.size_bytes += size_bytes;
            folder.mapped_bytes = folder.mapped_bytes.zip(mapped_bytes).map(|(sum, own)| sum + own);
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_count_what_lies_in_and_below_them() {
        let volume = |path: &str, size, mapped| (Folder::parse(path).unwrap(), size, mapped);
        let listed = folders(
            [
                volume("prod/sql", 10, Some(1)),
                volume("prod-old", 100, None),
                volume("", 1000, Some(3)),
                volume("prod", 10_000, Some(4)),
                volume("prod/sql", 100_000, Some(5)),
            ]
            .into_iter(),
        );
        let rows: Vec<_> = listed
            .iter()
            .map(|f| (f.path.as_str(), f.volumes, f.volumes_below, f.size_bytes, f.mapped_bytes))
            .collect();
        assert_eq!(
            rows,
            [
                ("/", 1, 5, 111_110, None),
                ("prod", 1, 3, 110_010, Some(10)),
                ("prod/sql", 2, 2, 100_010, Some(6)),
                ("prod-old", 1, 1, 100, None),
            ]
        );
        assert_eq!(folders(std::iter::empty()).len(), 1);
    }
}
