//! Files and block devices as disks.

use crate::{OpenError, ring};
use quoin_world::{Completion, Disk, DiskError, DiskInstruments, DiskOp};
use rustix::{
    fs::{AtFlags, FlockOperation, StatxFlags, flock, ioctl_blksszget, statx},
    io::Errno,
};
use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// How to open a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Make a sparse file of so many bytes if there is none. One of another size is refused.
    pub create_len: Option<u64>,
}

/// What operations in flight keep open.
pub(crate) struct Target {
    name: String,
    file: File,
    pub(crate) instruments: Arc<DiskInstruments>,
}

struct LinuxDisk {
    /// It was a file with holes when it was measured last.
    is_sparse: AtomicBool,
    target: Arc<Target>,
    is_device: bool,
    len_bytes: AtomicU64,
    block_bytes: u32,
}

/// Opens a file or block device for direct I/O and locks it against every other opener, by the very file
/// description that does the I/O. The lock goes when the disk and the last operation on it are gone.
///
/// # Errors
/// [`OpenError::NotADrive`] if it is neither a file nor a block device, [`OpenError::InUse`] if another process
/// has it open, [`OpenError::OtherLen`] if it exists with another size than is to be made,
/// [`OpenError::NoDirectIo`] or [`OpenError::CoarseBlocks`] if it cannot be read and written as the engine
/// does. [`OpenError::Io`] if the system refuses to open, lock, make or measure it.
pub fn open_disk(path: &Path, options: OpenOptions) -> Result<Arc<dyn Disk>, OpenError> {
    let failed = |operation| move |source| OpenError::Io { path: path.into(), operation, source };
    let (file, is_device) = open_direct(path, options.create_len.is_some())?;
    // One process at a time: a second array on the same file would destroy it.
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
        Errno::WOULDBLOCK => OpenError::InUse { path: path.into() },
        other => failed("lock it")(other.into()),
    })?;
    let mut found = (&file).seek(SeekFrom::End(0)).map_err(failed("find its size"))?;
    // A file is made only where nothing is; one of another length is not ours.
    if let Some(asked) = options.create_len {
        if found == 0 && !is_device {
            make(&file, path, asked).map_err(failed("make it"))?;
            found = asked;
        }
        if found != asked {
            return Err(OpenError::OtherLen { path: path.into(), found, asked });
        }
    }
    // Blocks are 512 or 4096 bytes, whichever direct I/O can address.
    let block_bytes = match unit_of_direct_io(&file, is_device).map_err(failed("find its block size"))? {
        0 => {
            let source = Errno::INVAL.into();
            return Err(OpenError::NoDirectIo { path: path.into(), source });
        }
        1..=512 => 512,
        513..=4096 => 4096,
        bytes => return Err(OpenError::CoarseBlocks { path: path.into(), bytes }),
    };
    let is_sparse = is_sparse(&file, is_device, found).map_err(failed("find its size"))?;
    let target = Arc::new(Target { name: path.display().to_string(), file, instruments: Arc::default() });
    Ok(Arc::new(LinuxDisk {
        is_sparse: AtomicBool::new(is_sparse),
        target,
        is_device,
        len_bytes: AtomicU64::new(whole_blocks(found, block_bytes)),
        block_bytes,
    }))
}

fn whole_blocks(bytes: u64, block_bytes: u32) -> u64 {
    bytes / u64::from(block_bytes) * u64::from(block_bytes)
}

/// A sparse file has fewer blocks than its length needs: a write may find no room.
fn is_sparse(file: &File, is_device: bool, len_bytes: u64) -> io::Result<bool> {
    Ok(!is_device && file.metadata()?.blocks() * 512 < len_bytes)
}

fn open_direct(path: &Path, create: bool) -> Result<(File, bool), OpenError> {
    let failed = |source: io::Error| OpenError::Io { path: path.into(), operation: "open it", source };
    let is_device = match fs::metadata(path) {
        Ok(found) if found.is_file() => false,
        Ok(found) if found.file_type().is_block_device() => true,
        Ok(_) => return Err(OpenError::NotADrive { path: path.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => false,
        Err(error) => return Err(failed(error)),
    };
    // On a device O_EXCL refuses one that is mounted or part of something else.
    let flags = libc::O_DIRECT | if is_device { libc::O_EXCL } else { 0 };
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(create && !is_device).custom_flags(flags).mode(0o600);
    match options.open(path) {
        Ok(file) => Ok((file, is_device)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(OpenError::NoDirectIo { path: path.into(), source: error })
        }
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(OpenError::InUse { path: path.into() })
        }
        Err(error) => Err(failed(error)),
    }
}

/// Gives a new file its length and makes both durable.
fn make(file: &File, path: &Path, len_bytes: u64) -> io::Result<()> {
    file.set_len(len_bytes)?;
    // The file first, then its name in the directory.
    file.sync_all()?;
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// The multiple that offsets and lengths must be of; 0 if there is no direct I/O.
fn unit_of_direct_io(file: &File, is_device: bool) -> io::Result<u32> {
    if is_device {
        return Ok(ioctl_blksszget(file)?);
    }
    let stat = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
        return Ok(stat.stx_dio_offset_align);
    }
    // A file system that does not say: FUSE, or an older kernel.
    let mut sector = quoin_world::Buf::zeroed(512);
    match file.read_at(sector.as_mut_slice(), 0) {
        Ok(_) => Ok(512),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(4096),
        Err(error) => Err(error),
    }
}

impl Target {
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn error(
        &self,
        operation: &'static str,
        offset: u64,
        len: u64,
        source: io::Error,
    ) -> DiskError {
        DiskError::Io { disk: self.name.clone(), operation, offset, len, source }
    }
}

impl Disk for LinuxDisk {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    fn measure(&self) -> u64 {
        // The end of a file or device is known to the system: nothing waits for the drive.
        let Ok(found) = (&self.target.file).seek(SeekFrom::End(0)) else { return self.len_bytes() };
        let len_bytes = whole_blocks(found, self.block_bytes);
        if let Ok(is_sparse) = is_sparse(&self.target.file, self.is_device, found) {
            self.is_sparse.store(is_sparse, Ordering::Release);
        }
        self.len_bytes.fetch_max(len_bytes, Ordering::AcqRel);
        len_bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn may_lack_room(&self) -> bool {
        self.is_sparse.load(Ordering::Acquire)
    }

    fn instruments(&self) -> Option<Arc<DiskInstruments>> {
        Some(self.target.instruments.clone())
    }

    fn submit(&self, op: DiskOp) -> Completion {
        let (operation, offset, len) = ring::describe(&op);
        let block = u64::from(self.block_bytes);
        // Checked here: the kernel would fail it, or with a file make it longer.
        let len_bytes = self.len_bytes();
        let fits = offset.checked_add(len).is_some_and(|end| end <= len_bytes);
        let aligned = offset.is_multiple_of(block) && len.is_multiple_of(block);
        let something = len > 0 || matches!(op, DiskOp::Flush);
        if fits && aligned && something {
            return ring::submit(&self.target, op);
        }
        let why = format!("not inside its {len_bytes} bytes or not in units of {block}");
        let source = io::Error::new(io::ErrorKind::InvalidInput, why);
        Completion::ready(Err(self.target.error(operation, offset, len, source)))
    }
}
