//! The host's side: iSCSI volume → `qemu-nbd` → `nbdfuse` → loop device → ext4, without a kernel initiator.

use crate::{
    array::{INITIATOR, Target},
    process::{Process, run, wait_until},
};
use anyhow::{Context, Result};
use std::{
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(30);

/// A volume attached as a loop device, and mounted most of the time. Dropping it takes all down by force.
#[derive(Debug)]
pub(crate) struct Attached {
    nbd_dir: PathBuf,
    mountpoint: PathBuf,
    device: String,
    // Declared in the order of their end: nbdfuse first lets the loop device's I/O fail, not hang.
    nbdfuse: Option<Process>,
    qemu_nbd: Option<Process>,
}

impl Attached {
    /// Everything of it lies in the directory `work`, which is made.
    pub(crate) fn attach(work: &Path, target: &Target) -> Result<Self> {
        let socket = work.join("nbd.sock");
        let (nbd_dir, mountpoint) = (work.join("nbd"), work.join("mnt"));
        std::fs::remove_file(&socket).ok();
        std::fs::create_dir_all(&nbd_dir)?;
        std::fs::create_dir_all(&mountpoint)?;
        let log = work.join("attach.log");
        let image = format!(
            "driver=iscsi,transport=tcp,portal={},target={},lun={},initiator-name={INITIATOR}",
            target.portal, target.iqn, target.lun
        );
        let socket_name = socket.display().to_string();
        let args =
            ["qemu-nbd", "-k", &socket_name, "-t", "--cache=none", "--discard=unmap", "--image-opts", &image];
        let mut qemu_nbd = Process::start("qemu-nbd", &args, &log)?;
        wait_until("qemu-nbd's socket", LIMIT, || {
            qemu_nbd.alive()?;
            Ok(std::fs::metadata(&socket).is_ok_and(|metadata| metadata.file_type().is_socket()))
        })?;
        let uri = format!("nbd+unix:///?socket={socket_name}");
        let mut nbdfuse =
            Process::start("nbdfuse", &["nbdfuse", &nbd_dir.display().to_string(), &uri], &log)?;
        let mut attached =
            Self { mountpoint, device: String::new(), nbdfuse: None, qemu_nbd: Some(qemu_nbd), nbd_dir };
        let file = attached.nbd_dir.join("nbd");
        wait_until("nbdfuse's file", LIMIT, || {
            nbdfuse.alive()?;
            Ok(std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 0))
        })?;
        attached.nbdfuse = Some(nbdfuse);
        let device = run(&["losetup", "--direct-io=on", "--show", "-f", &file.display().to_string()])?;
        attached.device = device.trim().to_owned();
        Ok(attached)
    }

    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    pub(crate) fn format(&self) -> Result<()> {
        run(&["mkfs.ext4", "-q", "-F", "-E", "nodiscard", &self.device]).map(drop)
    }

    pub(crate) fn mount(&self) -> Result<()> {
        run(&["mount", "-t", "ext4", "-o", "noatime", &self.device, &self.mountpoint.display().to_string()])
            .map(drop)
    }

    pub(crate) fn unmount(&self) -> Result<()> {
        run(&["umount", &self.mountpoint.display().to_string()]).map(drop)
    }

    /// Tells the array about the space the file system does not use. Returns what was trimmed.
    pub(crate) fn trim(&self) -> Result<String> {
        run(&["fstrim", "-v", &self.mountpoint.display().to_string()])
    }

    /// Checks the unmounted file system, reading it from the volume.
    pub(crate) fn check_file_system(&self) -> Result<()> {
        drop_page_cache()?;
        run(&["e2fsck", "-f", "-n", &self.device]).context("the file system is damaged").map(drop)
    }

    /// Unmounts and detaches in good order.
    pub(crate) fn detach(mut self) -> Result<()> {
        self.unmount()?;
        run(&["losetup", "-d", &self.device])?;
        wait_until("the loop device to be free", LIMIT, || Ok(!is_bound(&self.device)))?;
        self.device.clear();
        run(&["umount", &self.nbd_dir.display().to_string()])?;
        if let Some(mut nbdfuse) = self.nbdfuse.take() {
            nbdfuse.ended(LIMIT)?;
        }
        self.qemu_nbd.take().map_or(Ok(()), |qemu_nbd| qemu_nbd.stop(LIMIT))
    }

    /// Kills the whole chain as a crash of the host would. Dying users of the file system may hold on to
    /// the device for a moment: see [`Self::gone`].
    pub(crate) fn kill(&mut self) {
        self.take_down();
    }

    /// Waits until nothing of a killed chain is left.
    pub(crate) fn gone(mut self) -> Result<()> {
        wait_until("the loop device to be free", LIMIT, || Ok(!is_bound(&self.device)))?;
        self.device.clear();
        Ok(())
    }

    fn take_down(&mut self) {
        drop(self.nbdfuse.take());
        drop(self.qemu_nbd.take());
        for mountpoint in [&self.mountpoint, &self.nbd_dir] {
            run(&["umount", "-l", &mountpoint.display().to_string()]).ok();
        }
        if !self.device.is_empty() {
            run(&["losetup", "-d", &self.device]).ok();
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.take_down();
    }
}

fn is_bound(device: &str) -> bool {
    Path::new(&device.replace("/dev/", "/sys/block/")).join("loop/backing_file").exists()
}

/// Drops the host's page cache, so that what is read next really comes from the volume.
pub(crate) fn drop_page_cache() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the page cache")
}
