#!/bin/bash
# Makes images with real data for `quoin-bench savings`: two PostgreSQL databases, each also restored five times; their dumps; text;
# programs. As root, with postgresql and e2fsprogs. Usage: reduction_sets.sh DIRECTORY [TEXT] [PROGRAMS]
#
# An image is a file system with the files of one set. A restored copy has the same files in a file system of its own, in another
# order and behind a file of odd length, as a restore would leave them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mkdir -p "${1:?which directory?}" && cd "$1" && pwd)
text=${2:-${CARGO_HOME:-$HOME/.cargo}/registry/src}
programs=${3:-/usr/lib/x86_64-linux-gnu}
copies=5
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
chmod 755 "$work"
cd "$work"

tree=$work/tree
cluster=$work/cluster
rm -rf "$tree" "$cluster"
mkdir -p "$tree"/{pgbench,tpcc,dump,text,programs} "$cluster"
chown postgres: "$cluster"
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
sql() { as_postgres psql -h "$cluster" -U postgres -qAt "$@"; }
as_postgres "$bin/initdb" -D "$cluster/data" -A trust -U postgres --no-locale -E UTF8 > /dev/null
printf '%s\n' "listen_addresses = ''" 'shared_buffers = 256MB' 'max_wal_size = 400MB' 'fsync = off' \
    >> "$cluster/data/postgresql.conf"
as_postgres "$bin/pg_ctl" -D "$cluster/data" -o "-k $cluster" -l "$cluster/log" -w start > /dev/null
trap 'as_postgres "$bin/pg_ctl" -D "$cluster/data" -m immediate stop > /dev/null 2>&1 || true' EXIT

sql -c 'CREATE DATABASE pgbench' -c 'CREATE DATABASE tpcc'
as_postgres pgbench -h "$cluster" -U postgres -i -q -s 30 pgbench 2> /dev/null
as_postgres pgbench -h "$cluster" -U postgres -c 4 -t 10000 pgbench > /dev/null 2>&1
sql tpcc < "$here/tpcc.sql" > /dev/null
for database in pgbench tpcc; do
    sql "$database" -c 'VACUUM ANALYZE'
    as_postgres pg_dump -h "$cluster" -U postgres "$database" > "$tree/dump/$database.sql"
done
sql -c CHECKPOINT
declare -A oid
for database in pgbench tpcc; do
    oid[$database]=$(sql -c "SELECT oid FROM pg_database WHERE datname = '$database'")
done
as_postgres "$bin/pg_ctl" -D "$cluster/data" -w stop > /dev/null
for database in pgbench tpcc; do mv "$cluster/data/base/${oid[$database]}" "$tree/$database/"; done
find "$text" -type f \( -name '*.rs' -o -name '*.md' -o -name '*.toml' -o -name '*.txt' -o -name '*.json' \) -print0 |
    sort -z | tar --null -T - -cf - 2> /dev/null | tar -xf - -C "$tree/text"
cp -r "$programs" "$tree/programs/"

# A file system of the set's size and a fifth more.
file_system() {
    local megabytes
    megabytes=$(du -sm --apparent-size "$tree/$1" | cut -f1)
    rm -f "$2"
    truncate -s $(((megabytes * 6 / 5 + 80) << 20)) "$2"
    mkfs.ext4 -q -b 4096 -O ^has_journal -m 0 "$2"
}
at=$work/at
mkdir -p "$at"
for set in pgbench tpcc dump text programs; do
    file_system "$set" "$set.img"
    mount -o loop "$set.img" "$at"
    cp -a "$tree/$set/." "$at"
    umount "$at"
done
for set in pgbench tpcc; do
    for copy in $(seq $copies); do
        image=$set-$copy.copy
        file_system "$set" "$image"
        mount -o loop "$image" "$at"
        head -c $((copy * 77777)) /dev/urandom > "$at/notes"
        (cd "$tree/$set" && find . -type f | shuf --random-source=<(yes "$copy") | tar -T - -cf -) | tar -xf - -C "$at"
        umount "$at"
    done
done
rm -rf "$tree" "$cluster" "$at"
ls -ls "$work"
