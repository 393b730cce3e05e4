#!/bin/bash
# What reduction costs a database: pgbench on PostgreSQL, whose files are on a volume with LZ4 and deduplication, and on one without,
# in turns on one array. As root, with postgresql, qemu-utils, qemu-block-extra, libnbd-bin and fuse3.
# Usage: reduction_tps.sh QUOIN [ROUNDS] [SECONDS] [SCALE]
set -euo pipefail
quoin=$(realpath "${1:?which quoin?}")
rounds=${2:-5} seconds=${3:-15} scale=${4:-30}
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
work=$(mktemp -d /var/tmp/quoin-tps.XXXXXX)
chmod 755 "$work"
cd "$work"
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
port() { echo $((20000 + RANDOM % 10000)); }
iscsi=127.0.0.1:$(port) api=127.0.0.1:$(port)
host=iqn.2026-11.io.quoin:tps
pids=()
end() {
    set +e
    for volume in off reduced; do
        as_postgres "$bin/pg_ctl" -D "$work/$volume/mnt/pg" -m immediate -w stop
        umount "$work/$volume/mnt"
        losetup -j "$work/$volume/nbd/nbd" | cut -d: -f1 | xargs -r losetup -d
        umount "$work/$volume/nbd"
    done > /dev/null 2>&1
    kill "${pids[@]}" 2> /dev/null
    wait
    rm -rf "$work"
}
trap end EXIT

for drive in 0 1 2 3; do dd if=/dev/zero of="drive-$drive.img" bs=1M count=2048 status=none; done
"$quoin" init --data array $(printf -- '--drive drive-%s.img ' 0 1 2 3) --layout none > /dev/null
"$quoin" serve --data array --iscsi "$iscsi" --api "$api" --memory-limit 1G > serve.log 2>&1 &
pids+=($!)
until "$quoin" status --data array -o json 2> /dev/null | grep -q '"ready": *true'; do sleep 0.2; done
iqn=$("$quoin" status --data array -o json | sed -n 's/.*"iqn": *"\([^"]*\)".*/\1/p' | head -1)
"$quoin" host create --data array tps --initiator "$host" > /dev/null

# A volume with a database on it.
database() {
    local volume=$1 lun=$2
    shift 2
    "$quoin" volume create --data array "$volume" --size 3g "$@" > /dev/null
    "$quoin" map --data array "$volume" --host tps --lun "$lun" > /dev/null
    mkdir -p "$volume/nbd" "$volume/mnt"
    qemu-nbd -k "$work/$volume/nbd.sock" -t --cache=none --discard=unmap --image-opts \
        "driver=iscsi,transport=tcp,portal=$iscsi,target=$iqn,lun=$lun,initiator-name=$host" &
    pids+=($!)
    until [ -S "$volume/nbd.sock" ]; do sleep 0.1; done
    nbdfuse "$volume/nbd" "nbd+unix:///?socket=$work/$volume/nbd.sock" &
    pids+=($!)
    until [ -s "$volume/nbd/nbd" ]; do sleep 0.1; done
    local device
    device=$(losetup --direct-io=on --show -f "$volume/nbd/nbd")
    mkfs.ext4 -q -F -E nodiscard "$device"
    mount -t ext4 -o noatime "$device" "$volume/mnt"
    mkdir "$volume/mnt/pg"
    chown postgres: "$volume/mnt/pg"
    chmod 700 "$volume/mnt/pg"
    as_postgres "$bin/initdb" -D "$volume/mnt/pg" -A trust -U postgres --no-locale > /dev/null
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work/$volume/mnt/pg'" 'shared_buffers = 64MB' \
        'max_wal_size = 1GB' 'checkpoint_timeout = 30s' >> "$volume/mnt/pg/postgresql.conf"
    as_postgres "$bin/pg_ctl" -D "$volume/mnt/pg" -l "$work/$volume/mnt/pg/log" -w start > /dev/null
    as_postgres pgbench -h "$work/$volume/mnt/pg" -U postgres -i -q -s "$scale" postgres > /dev/null 2>&1
}
database off 1
database reduced 2 --compression lz4 --dedup on

echo '| round | off TPS | reduced TPS | ratio | off ms | reduced ms |'
echo '|---|---|---|---|---|---|'
for round in $(seq "$rounds"); do
    declare -A tps latency
    order=(off reduced)
    [ $((round % 2)) = 0 ] && order=(reduced off)
    for volume in "${order[@]}"; do
        as_postgres psql -h "$work/$volume/mnt/pg" -U postgres -qAtc CHECKPOINT postgres
        said=$(as_postgres pgbench -h "$work/$volume/mnt/pg" -U postgres -c 8 -T "$seconds" postgres 2>&1)
        tps[$volume]=$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' <<< "$said")
        latency[$volume]=$(sed -n 's/^latency average = \([0-9.]*\).*/\1/p' <<< "$said")
    done
    ratio=$(awk "BEGIN { printf \"%.3f\", ${tps[reduced]} / ${tps[off]} }")
    echo "| $round | ${tps[off]} | ${tps[reduced]} | $ratio | ${latency[off]} | ${latency[reduced]} |"
done
for volume in off reduced; do "$quoin" space volume --data array "$volume"; done
