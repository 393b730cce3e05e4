//! The FUSE side: requests of the kernel, turned into operations of drives.
//!
//! Files are opened for direct I/O with parallel writes, so that every request of a process arrives here as
//! it was made, with its durability flags. No request waits for another drive's; a slow drive's requests wait on
//! threads of their own.

use crate::{
    FaultFsError, Options, Shelf,
    drive::{Cycle, Drive},
};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::FallocateFlags;
use std::{
    ffi::OsStr,
    fs::Metadata,
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

const ROOT: INodeNo = INodeNo(1);
/// Inode numbers of drives start here, in the order of their numbers on the shelf.
const FIRST_DRIVE_INODE: u64 = 2;
const OPENED: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
/// Nothing is cached in the kernel.
const TTL: Duration = Duration::ZERO;
const REQUESTS_IN_FLIGHT: u16 = 256;

/// A mounted file system served by threads of this process. Unmounts when dropped, after flushing the drives.
#[derive(Debug)]
pub struct Mounted {
    shelf: Arc<Shelf>,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts the drives of `backing` at the directory `mountpoint`.
    ///
    /// # Errors
    /// [`FaultFsError::Mount`] without `/dev/fuse` or the right to use it; [`FaultFsError::Backing`].
    pub fn new(backing: &Path, mountpoint: &Path, options: Options) -> Result<Self, FaultFsError> {
        let shelf = Shelf::open(backing, options)?;
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("quoin-faultfs".to_owned()), MountOption::DefaultPermissions];
        config.n_threads = Some(4);
        config.clone_fd = true;
        let failed = |source| FaultFsError::Mount {
            backing: backing.to_owned(),
            mountpoint: mountpoint.to_owned(),
            source,
        };
        let session =
            fuser::spawn_mount(Front { shelf: shelf.clone() }, mountpoint, &config).map_err(failed)?;
        Ok(Self { shelf, session: Some(session) })
    }

    /// The drives, to command them.
    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// Waits until somebody unmounts it.
    ///
    /// # Errors
    /// The error that ended the connection to the kernel.
    pub fn wait(mut self) -> io::Result<()> {
        self.session.take().map_or(Ok(()), BackgroundSession::join)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && let Err(error) = session.umount_and_join()
        {
            eprintln!("quoin-faultfs: unmounting: {error}");
        }
    }
}

struct Front {
    shelf: Arc<Shelf>,
}

impl Front {
    fn drive(&self, inode: INodeNo) -> io::Result<Arc<Drive>> {
        let number = inode.0.checked_sub(FIRST_DRIVE_INODE).ok_or(rustix::io::Errno::ISDIR)?;
        self.shelf.drive(number as usize)
    }

    fn attributes(&self, inode: INodeNo) -> io::Result<FileAttr> {
        if inode == ROOT {
            return Ok(attributes(inode, &std::fs::metadata(self.shelf.backing())?));
        }
        Ok(attributes(inode, &self.drive(inode)?.metadata()?))
    }

    fn look_up(&self, name: &OsStr) -> io::Result<FileAttr> {
        let (number, drive) = self.shelf.find(&name.to_string_lossy()).ok_or(rustix::io::Errno::NOENT)?;
        Ok(attributes(inode_of(number), &drive.metadata()?))
    }

    /// Runs an operation of a drive, on a thread of its own if the drive is slow or hangs.
    fn run(&self, inode: INodeNo, operation: impl FnOnce(io::Result<&Drive>) + Send + 'static) {
        match self.drive(inode) {
            Err(error) => operation(Err(error)),
            Ok(drive) if drive.hangs() => {
                std::thread::spawn(move || {
                    drive.wait_until_healed();
                    operation(Ok(&drive));
                });
            }
            Ok(drive) => match drive.delay() {
                Duration::ZERO => operation(Ok(&drive)),
                delay => {
                    std::thread::spawn(move || {
                        std::thread::sleep(delay);
                        operation(Ok(&drive));
                    });
                }
            },
        }
    }
}

fn inode_of(number: usize) -> INodeNo {
    INodeNo(number as u64 + FIRST_DRIVE_INODE)
}

fn attributes(ino: INodeNo, metadata: &Metadata) -> FileAttr {
    FileAttr {
        ino,
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: metadata.accessed().unwrap_or(SystemTime::UNIX_EPOCH),
        mtime: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        ctime: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        crtime: SystemTime::UNIX_EPOCH,
        kind: if metadata.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: 1,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Answers with what an expression gives, or with its error.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $send:expr) => {
        match $result {
            Ok($value) => $send,
            Err(error) => $reply.error(Errno::from(io::Error::from(error))),
        }
    };
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_DIO & config.capabilities();
        if config.add_capabilities(wanted).is_err() || config.set_max_background(REQUESTS_IN_FLIGHT).is_err()
        {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(())
    }

    fn destroy(&mut self) {
        if let Err(error) = self.shelf.flush() {
            eprintln!("quoin-faultfs: {error}");
        }
    }

    fn lookup(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.look_up(name), attr => reply.entry(&TTL, &attr, Generation(0)));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.attributes(inode), attr => reply.attr(&TTL, &attr));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.map_or(Ok(()), |size| self.drive(inode)?.set_len(size));
        answer!(reply, resized.and_then(|()| self.attributes(inode)), attr => reply.attr(&TTL, &attr));
    }

    fn create(
        &self,
        _: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let create = || -> io::Result<(FileAttr, Cycle)> {
            let created = self.shelf.create(&name.to_string_lossy());
            let (number, drive) = created.map_err(io::Error::other)?;
            Ok((attributes(inode_of(number), &drive.metadata()?), drive.handle()?))
        };
        answer!(reply, create(), (attr, cycle) =>
            reply.created(&TTL, &attr, Generation(0), FileHandle(cycle.0), OPENED));
    }

    fn unlink(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let found = self.shelf.find(&name.to_string_lossy()).ok_or(io::ErrorKind::NotFound.into());
        answer!(reply, found.and_then(|(number, _)| self.shelf.remove(number)), () => reply.ok());
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.drive(inode).and_then(|drive| drive.handle());
        answer!(reply, opened, cycle => reply.opened(FileHandle(cycle.0), OPENED));
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(inode, move |drive| {
            let read = drive.and_then(|drive| drive.read(Cycle(handle.0), offset, size as usize));
            answer!(reply, read, data => reply.data(&data));
        });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (data, durable) = (data.to_vec(), flags.0 & (libc::O_DSYNC | libc::O_SYNC) != 0);
        self.run(inode, move |drive| {
            let len = data.len() as u32;
            let written = drive.and_then(|drive| drive.write(Cycle(handle.0), offset, data, durable));
            answer!(reply, written, () => reply.written(len));
        });
    }

    fn flush(&self, _: &Request, _inode: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.run(inode, move |drive| {
            answer!(reply, drive.and_then(|drive| drive.flush(Cycle(handle.0))), () => reply.ok());
        });
    }

    fn fsyncdir(&self, _: &Request, _inode: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.run(inode, move |drive| {
            let mode = FallocateFlags::from_bits_retain(mode as u32);
            let done = drive.and_then(|drive| drive.allocate(Cycle(handle.0), offset, length, mode));
            answer!(reply, done, () => reply.ok());
        });
    }

    fn readdir(&self, _: &Request, _inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let dots =
            [(ROOT, FileType::Directory, ".".to_owned()), (ROOT, FileType::Directory, "..".to_owned())];
        let drives = self.shelf.numbered();
        let drives = drives
            .iter()
            .map(|(number, drive)| (inode_of(*number), FileType::RegularFile, drive.name().to_owned()));
        for (at, (inode, kind, name)) in dots.into_iter().chain(drives).enumerate().skip(offset as usize) {
            if reply.add(inode, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        answer!(reply, rustix::fs::statvfs(self.shelf.backing()), s => reply.statfs(
            s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_bsize as u32, 255, s.f_frsize as u32,
        ));
    }
}
