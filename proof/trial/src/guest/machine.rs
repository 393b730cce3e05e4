//! A virtual machine under software emulation: Debian's stock kernel, whose root is this host's over read-only 9p
//! under an overlay in memory, so that it has every tool this host has and can change nothing here.

use super::packages::unpacked;
use crate::process::{Process, run, wait_until};
use anyhow::{Context, Result};
use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// What the guest's addresses for forwarded connections are, to one portal and the other.
const PORTALS: [&str; 2] = ["192.0.2.100:3260", "192.0.2.101:3260"];
/// The same for NBD.
const NBD: &str = "192.0.2.100:10809";
/// Modules that it takes to mount the root, in the order in which they are to be loaded.
const MODULES: [&str; 15] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "9pnet",
    "9pnet_virtio",
    "netfs",
    "fscache",
    "9p",
    "overlay",
    "virtio-rng",
];
const INIT: &str = include_str!("init.sh");

/// Debian's kernel, unpacked.
#[derive(Debug)]
pub(crate) struct Kernel {
    root: PathBuf,
    release: String,
}

impl Kernel {
    /// The kernel that `linux-image-amd64` stands for now; downloaded if it is not under `cache` already.
    pub(crate) fn fetch(cache: &Path) -> Result<Self> {
        let said = run(&["apt-cache", "depends", "linux-image-amd64"])
            .context("looking for Debian's kernel; has `apt-get update` ever run here?")?;
        let package = said.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
        let release = package.context("linux-image-amd64 depends on no kernel")?.to_owned();
        let root = unpacked(&format!("linux-image-{release}"), cache.join(&release), |root| {
            run(&["busybox", "depmod", "-b", &root.display().to_string(), &release]).map(drop)
        })?;
        Ok(Self { root, release })
    }

    fn modules(&self) -> PathBuf {
        self.root.join("lib/modules").join(&self.release)
    }

    /// Builds the first file system, which mounts the real one and runs `checks.sh` of the scripts in it.
    fn initramfs(&self, work: &Path, scripts: &[(&str, &str)]) -> Result<PathBuf> {
        let tree = work.join("initramfs");
        std::fs::create_dir_all(tree.join("bin"))?;
        std::fs::create_dir_all(tree.join("modules"))?;
        std::fs::copy("/bin/busybox", tree.join("bin/busybox")).context("copying busybox")?;
        let found = run(&["find", &self.modules().display().to_string(), "-name", "*.ko"])?;
        for module in MODULES {
            let file = format!("{module}.ko");
            let path = found.lines().find(|line| line.rsplit('/').next() == Some(&file));
            let path = path.with_context(|| format!("the kernel has no {file}"))?;
            std::fs::copy(path, tree.join("modules").join(&file))?;
        }
        std::fs::write(tree.join("modules/order"), MODULES.join("\n") + "\n")?;
        std::fs::write(tree.join("modules/path"), self.modules().display().to_string())?;
        std::fs::create_dir_all(tree.join("checks"))?;
        for (name, script) in scripts {
            std::fs::write(tree.join("checks").join(name), script)?;
        }
        std::fs::write(tree.join("init"), INIT)?;
        let image = work.join("initramfs.cpio");
        let pack = "chmod 755 init && find . | busybox cpio -o -H newc -F \"$1\"";
        run(&[
            "env",
            "-C",
            &tree.display().to_string(),
            "sh",
            "-ec",
            pack,
            "sh",
            &image.display().to_string(),
        ])?;
        Ok(image)
    }
}

/// A running machine.
pub(crate) struct Machine {
    qemu: Process,
    console: PathBuf,
}

impl Machine {
    /// Boots it to run `checks.sh` of the scripts, and returns the other end of its second serial port. What it
    /// connects to at port 3260 of 192.0.2.100 and 192.0.2.101 are `ports` on 127.0.0.1, and port 10809 of the first
    /// is the Unix socket `nbd`; it reaches nothing else.
    pub(crate) fn boot(
        kernel: &Kernel,
        work: &Path,
        scripts: &[(&str, &str)],
        ports: [u16; 2],
        nbd: &Path,
    ) -> Result<(Self, UnixStream)> {
        let (console, control) = (work.join("console.log"), work.join("control.sock"));
        let initramfs = kernel.initramfs(work, scripts)?.display().to_string();
        let image =
            kernel.root.join("boot").join(format!("vmlinuz-{}", kernel.release)).display().to_string();
        // What it complains of must not get among the data: QEMU joins its standard error to its output.
        let carrier = "socat -lf /dev/null";
        let mut network = format!(
            "user,id=net,restrict=on,net=192.0.2.0/24,guestfwd=tcp:{NBD}-cmd:{carrier} - UNIX-CONNECT:{}",
            nbd.display()
        );
        for (portal, port) in PORTALS.iter().zip(ports) {
            network += &format!(",guestfwd=tcp:{portal}-cmd:{carrier} - TCP:127.0.0.1:{port}");
        }
        let (serial, socket) = (
            format!("file:{}", console.display()),
            format!("socket,id=control,path={},server=on,wait=off", control.display()),
        );
        let root = "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap";
        let args = [
            &["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "max", "-m", "1024"][..],
            &["-nodefaults", "-no-reboot", "-display", "none"],
            &["-serial", &serial, "-chardev", &socket, "-serial", "chardev:control"],
            &["-kernel", &image, "-initrd", &initramfs, "-append", "console=ttyS0 loglevel=6 panic=-1"],
            &["-virtfs", root, "-device", "virtio-rng-pci"],
            &["-netdev", &network, "-device", "virtio-net-pci,netdev=net,romfile="],
        ];
        let mut qemu = Process::start("qemu-system-x86_64", &args.concat(), &work.join("qemu.log"))?;
        let mut connected = None;
        wait_until("the guest's second serial port", Duration::from_secs(30), || {
            qemu.alive()?;
            connected = UnixStream::connect(&control).ok();
            Ok(connected.is_some())
        })?;
        Ok((Self { qemu, console }, connected.context("connected")?))
    }

    /// What the guest's console says.
    pub(crate) fn console(&self) -> &Path {
        &self.console
    }

    /// An error if the machine has ended by itself.
    pub(crate) fn alive(&mut self) -> Result<()> {
        self.qemu.alive()
    }

    /// Switches it off.
    pub(crate) fn end(self) -> Result<()> {
        self.qemu.kill()
    }
}
