#!/bin/bash
# Installs the Debian packages that are missing for a purpose: `build`, or `test` (which includes it).
# What the packages bring along as services is not started, now or at the next boot.
set -euo pipefail

packages=(ca-certificates curl gcc libc6-dev)
if [ "${1:?build or test}" = test ]; then
    packages+=(e2fsprogs fio fuse3 libiscsi-bin libnbd-bin postgresql prometheus python3-libnbd python3-venv qemu-block-extra qemu-utils)
    packages+=(tgt util-linux)
    # The other side of the comparison over NBD.
    packages+=(nbdkit)
    # For the guest with a Linux kernel's own initiators; its kernel is downloaded when it is first run.
    packages+=(busybox-static iproute2 multipath-tools nbd-client open-iscsi qemu-system-x86 sg3-utils socat udev)
    # For the fence agents that it runs, which are downloaded too: as a package they would bring clients of every cloud.
    packages+=(python3-pexpect python3-pycurl)
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null || { echo "missing: ${missing[*]}; install them as root, or install sudo" >&2; exit 1; }
    exec sudo "$0" "$1"
fi

enabled() {
    [ ! -d /run/systemd/system ] || systemctl list-unit-files --state=enabled --no-legend | cut -d' ' -f1 | sort
}

policy=/usr/sbin/policy-rc.d
saved=$policy.before-quoin
restore() {
    rm -f "$policy"
    [ ! -e "$saved" ] || mv "$saved" "$policy"
}
trap restore EXIT
[ ! -e "$policy" ] || mv "$policy" "$saved"
printf '#!/bin/sh\nexit 101\n' > "$policy"
chmod 755 "$policy"

before=$(enabled)
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --yes --no-install-recommends "${missing[@]}" > /dev/null
new=$(comm -13 <(echo "$before") <(enabled))
[ -z "$new" ] || echo "$new" | xargs systemctl disable --quiet
