//! Where a drive really is: the file or device that a path leads to, and the disk below it, as the system tells.
//!
//! What shares a disk fails with it: that names the fault domain of a drive unless the user names another one.

use quoin_array::DriveLocation;
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Where the system describes block devices, by their numbers.
const DEVICES: &str = "/sys/dev/block";

/// Where the drive at a path is; `None` if there is nothing.
pub(crate) fn location(path: &Path) -> Option<DriveLocation> {
    let resolved = fs::canonicalize(path).ok()?;
    let metadata = fs::metadata(&resolved).ok()?;
    let is_device = metadata.file_type().is_block_device();
    let number = if is_device { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let disk = disk_of(&Path::new(DEVICES).join(format!("{major}:{minor}")));
    let told = |names: &[&str]| {
        let disk = disk.as_ref()?;
        names.iter().find_map(|name| {
            let text = fs::read_to_string(disk.join(name)).ok()?;
            let text = text.trim();
            (!text.is_empty()).then(|| text.to_owned())
        })
    };
    let name =
        disk.as_ref().and_then(|disk| disk.file_name()).map(|name| name.to_string_lossy().into_owned());
    Some(DriveLocation {
        path: resolved.display().to_string(),
        is_device,
        // A file system without a device of its own, such as one in memory, is known by its number.
        disk: name.unwrap_or_else(|| format!("file system {major}:{minor}")),
        model: told(&["device/model"]),
        serial: told(&["device/serial", "serial"]),
        wwn: told(&["device/wwid", "wwid"]),
    })
}

/// The directory of the disk that a device is, or is a part of.
fn disk_of(device: &Path) -> Option<PathBuf> {
    let device = fs::canonicalize(device).ok()?;
    let is_part = device.join("partition").exists();
    if is_part { device.parent().map(Path::to_owned) } else { Some(device) }
}

/// What names the fault domain of all that is on the disk: what stays the same when the disk gets another name, if it has
/// that.
pub(crate) fn disk_name(location: &DriveLocation) -> &str {
    location.wwn.as_deref().or(location.serial.as_deref()).unwrap_or(&location.disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_directory_are_on_one_disk() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, b"").unwrap();
            location(&path).unwrap()
        };
        let (one, other) = (of("a"), of("b"));
        assert!(!one.is_device && one.path.ends_with("/a"), "{one:?}");
        assert_eq!(disk_name(&one), disk_name(&other));
        assert!(!disk_name(&one).is_empty());
        assert_eq!(location(&directory.path().join("c")), None);
    }

    #[test]
    fn a_part_of_a_disk_is_on_the_disk() {
        let sys = tempfile::tempdir().unwrap();
        let (disk, part) = (sys.path().join("sda"), sys.path().join("sda/sda1"));
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join("partition"), b"1\n").unwrap();
        let disk = fs::canonicalize(disk).unwrap();
        assert_eq!((disk_of(&part), disk_of(&disk)), (Some(disk.clone()), Some(disk)));
        assert_eq!(disk_of(&sys.path().join("sdb")), None);
    }
}
