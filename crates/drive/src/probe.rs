//! What is on a disk: nothing, a drive of Quoin's, or something else.

use crate::{DriveError, FORMAT_VERSION, HEAD_BYTES, LABEL_BYTES, LABEL_OFFSETS, Label, label::Copy};
use quoin_world::{Buf, Disk, DiskError, DiskOp};
use std::sync::Arc;

/// How much of the disk's end is looked at, and wiped when it is initialised: partition tables and RAID
/// members keep copies there.
pub(crate) const TAIL_BYTES: u64 = 128 << 10;

/// What is on a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Only zeroes where anything would show.
    Blank,
    /// A drive of a pool, by its newest intact label.
    Quoin(Label),
    /// Something else, in words such as "an ext4 file system".
    Foreign(String),
}

/// Says what is on `disk`. A drive of another version of the on-disk format and one whose labels are both damaged are
/// errors.
///
/// # Errors
/// [`DriveError::TooSmall`] for a disk without room for the head of a drive, [`DriveError::FormatVersion`]
/// and [`DriveError::LabelDamaged`] as said above. [`DriveError::Disk`] if no label is intact and one cannot
/// be read, or the disk fails to read where others leave their traces.
pub async fn probe(disk: &Arc<dyn Disk>) -> Result<Probe, DriveError> {
    require_len(disk, HEAD_BYTES + TAIL_BYTES)?;
    let copies = read_copies(disk).await;
    let mut damage: Option<DriveError> = None;
    let mut newest: Option<Label> = None;
    for copy in copies {
        match copy {
            Copy::Valid(label) if newest.as_ref().is_none_or(|n| n.generation < label.generation) => {
                newest = Some(*label);
            }
            Copy::Valid(_) | Copy::Absent => {}
            Copy::Damaged(why) => damage = Some(DriveError::LabelDamaged { drive: disk.name().into(), why }),
            // Nobody may take a drive for blank or foreign whose label could not be read.
            Copy::Unreadable(error) => {
                damage.get_or_insert(DriveError::Disk(error));
            }
            Copy::OtherVersion(found) => {
                return Err(DriveError::FormatVersion {
                    drive: disk.name().into(),
                    found,
                    expected: FORMAT_VERSION,
                });
            }
        }
    }
    match (newest, damage) {
        (Some(label), _) => Ok(Probe::Quoin(label)),
        (None, Some(damaged)) => Err(damaged),
        (None, None) => look_for_others(disk).await,
    }
}

/// Both copies of the label.
pub(crate) async fn read_copies(disk: &Arc<dyn Disk>) -> [Copy; 2] {
    let [first, second] =
        LABEL_OFFSETS.map(|offset| disk.submit(DiskOp::Read { offset, buf: Buf::zeroed(LABEL_BYTES) }));
    let copy = |read: Result<Buf, DiskError>| match read {
        Ok(bytes) => Label::decode(&bytes),
        Err(error) => Copy::Unreadable(error),
    };
    [copy(first.await), copy(second.await)]
}

pub(crate) fn require_len(disk: &Arc<dyn Disk>, needed: u64) -> Result<(), DriveError> {
    match disk.len_bytes() {
        found if found < needed => Err(DriveError::TooSmall { drive: disk.name().into(), found, needed }),
        _ => Ok(()),
    }
}

/// First byte of the end that is looked at, aligned down to 4 KiB, and its length in whole disk blocks.
pub(crate) fn tail(disk: &Arc<dyn Disk>) -> (u64, u64) {
    let end = disk.len_bytes() / u64::from(disk.block_bytes()) * u64::from(disk.block_bytes());
    let start = (end - TAIL_BYTES) & !4095;
    (start, end - start)
}

async fn look_for_others(disk: &Arc<dyn Disk>) -> Result<Probe, DriveError> {
    let (tail_start, tail_len) = tail(disk);
    let head = disk.submit(DiskOp::Read { offset: 0, buf: Buf::zeroed(HEAD_BYTES as usize) });
    let tail = disk.submit(DiskOp::Read { offset: tail_start, buf: Buf::zeroed(tail_len as usize) });
    let (head, tail) = (head.await?, tail.await?);
    if let Some((what, ..)) = SIGNATURES.iter().find(|(_, at, magic)| head[*at..].starts_with(magic)) {
        return Ok(Probe::Foreign((*what).into()));
    }
    let blank = head.iter().chain(tail.iter()).all(|&b| b == 0);
    Ok(if blank { Probe::Blank } else { Probe::Foreign("data that is not Quoin's".into()) })
}

/// What it is, at which byte, and the bytes there. Partition tables last: file systems leave room for them.
const SIGNATURES: &[(&str, usize, &[u8])] = &[
    ("an ext2, ext3 or ext4 file system", 1080, &[0x53, 0xEF]),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 65600, b"_BHRfS_M"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("a FAT file system", 54, b"FAT1"),
    ("a FAT file system", 82, b"FAT32"),
    ("an ISO 9660 file system", 32769, b"CD001"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("a member of a Linux software RAID", 4096, &[0xFC, 0x4E, 0x2B, 0xA9]),
    ("a member of a Linux software RAID", 0, &[0xFC, 0x4E, 0x2B, 0xA9]),
    ("a qcow2 disk image", 0, b"QFI\xfb"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("an MBR partition table", 510, &[0x55, 0xAA]),
];
