#!/bin/bash
# What a newcomer does: make up, use the volume, make up again, make down and up: the data is there. make clean-data.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d /var/tmp/quoin-make-up.XXXXXX)
export VAR=$work/var PROFILE=${PROFILE:-dev}
free_port() {
    local port=$((20000 + RANDOM % 10000))
    while (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do port=$((port + 1)); done
    echo "$port"
}
export ISCSI=127.0.0.1:$(free_port) API=127.0.0.1:$(free_port)
make() { command make --no-print-directory "$@"; }
trap 'make down > /dev/null || true; rm -rf "$work"' EXIT

expect() { grep -qF -- "$1" <<< "$said" || { echo "expected '$1' in:"; echo "$said"; exit 1; }; }

said=$(make up)
echo "$said"
expect 'sudo iscsiadm -m node -T iqn.'
image=$(sed -n 's/^  qemu-img info --image-opts //p' <<< "$said")
said=$(qemu-img info --image-opts "$image")
expect 'virtual size: 4 GiB'
qemu-io --image-opts "$image" -c 'write -P 7 1M 64k'
pid=$(cat "$VAR/quoin.pid")

said=$(make up)
expect "process $pid,"
make down
! readlink "/proc/$pid/exe" || { echo "process $pid still runs"; exit 1; }
make up > /dev/null
qemu-io --image-opts "$image" -c 'read -P 7 1M 64k' | grep -q 'read 65536/65536'
make clean-data
[ ! -e "$VAR" ] || { echo "$VAR is still there"; exit 1; }
