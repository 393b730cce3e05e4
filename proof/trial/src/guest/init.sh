#!/bin/busybox sh
# First program of the guest: makes the host's root file system, read-only over 9p under a writable overlay,
# the guest's own, with the kernel's modules in place, and runs the checks in it.
bb=/bin/busybox
$bb mkdir -p /proc /sys /dev /sbin /lib /lower /upper /new
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs devtmpfs /dev
while read -r module; do
    $bb insmod "/modules/$module.ko" || echo "module $module not loaded"
done < /modules/order
$bb mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose root /lower
$bb mount -t tmpfs tmpfs /upper
$bb mkdir -p /upper/files /upper/work
$bb mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /new
for directory in proc sys dev; do
    $bb mkdir -p /new/$directory
    $bb mount --bind /$directory /new/$directory
done

# The kernel looks for modprobe here, and programs of the guest do there. Both get busybox's, also where the host has
# kmod's: busybox's depmod wrote the only index of these modules, and kmod's modprobe does not read that one.
release=$($bb uname -r)
$bb mkdir -p "/new/lib/modules/$release"
$bb mount --bind "/new$($bb cat /modules/path)" "/new/lib/modules/$release"
$bb ln -s /new/lib/modules /lib/modules
$bb ln -s $bb /sbin/modprobe
$bb ln -sf /bin/busybox /new/sbin/modprobe

for directory in run tmp; do
    $bb mkdir -p /new/$directory
    $bb mount -t tmpfs tmpfs /new/$directory
done
$bb cp -r /checks /new/run/checks
$bb chroot /new /bin/bash /run/checks/checks.sh
$bb poweroff -f
