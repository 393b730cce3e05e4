# Two nodes of a cluster, which fence one another: sessions of two initiator names, and the disks that they see. For
# checks.sh, which reads this.

second=iqn.2026-11.test:second

disk_of_initiator() { # NAME LUN
    local session found
    for session in /sys/class/iscsi_session/*; do
        [ "$(cat "$session/initiatorname")" = "$1" ] || continue
        for found in "$session"/device/target*/*:"$2"/block/*; do
            [ -e "$found" ] && echo "/dev/${found##*/}" && return
        done
    done
    return 1
}

# Another node of a cluster. Sets $other.
second_node() {
    ask quoin host set trial --initiator "$name" --initiator "$second" &&
        iscsiadm -m iface -I second -o new &&
        iscsiadm -m iface -I second -o update -n iface.initiatorname -v "$second" && second_login
}

second_login() {
    iscsiadm -m node -o new -T "$iqn" -p "$portal" -I second && node -I second --login &&
        within 30 disk_of_initiator "$second" 1 && other=$(disk_of_initiator "$second" 1)
}

second_logout() { node -I second --logout && node -I second -o delete; }

# One of Pacemaker's fence agents.
agent() { # NAME OPTIONS
    ask agents && PYTHONPATH=$reply/usr/share/fence python3 "$reply/usr/sbin/$1" "${@:2}"
}

register() { sg_persist --no-inquiry --out --register --param-sark="$2" --param-aptpl "$1"; }

keys_are() { # DEVICE KEY...
    is keys "${*:2}" "$(sg_persist --no-inquiry --in --read-keys "$1" | grep -o '0x[0-9a-f]*$' | sort | xargs)"
}

raw_write() { dd if=/dev/zero of="$1" bs=4k count=1 seek=$((raw_lba / 8)) oflag=direct status=none; }

# Fenced as clusters do it: write exclusive, registrants only.
fenced() {
    register "$disk" 0x1 && register "$other" 0x2 && keys_are "$disk" 0x1 0x2 &&
        sg_persist --no-inquiry --out --reserve --param-rk=0x1 --prout-type=5 "$disk" && raw_write "$other" &&
        sg_persist --no-inquiry --out --preempt-abort --param-rk=0x2 --param-sark=0x1 --prout-type=5 "$other" &&
        keys_are "$other" 0x2 && raw_write "$other" && ! raw_write "$disk" &&
        sg_persist --no-inquiry --in --read-full-status "$other" > /run/full && holds "$second,i,0x" /run/full
}

fenced_still() {
    ask kill && ask start && within 60 raw_write "$other" && keys_are "$other" 0x2 && ! raw_write "$disk"
}

# A load of the first node is under way when it is fenced: nothing of it lands afterwards.
fenced_under_load() {
    sg_persist --no-inquiry --out --clear --param-rk=0x2 "$other" && register "$disk" 0x1 && register "$other" 0x2 &&
        sg_persist --no-inquiry --out --reserve --param-rk=0x1 --prout-type=5 "$disk" || return
    replace=exec raw_load "$disk" --time_based --runtime=600 > /run/raw 2>&1 &
    local loading=$!
    writes_go_on &&
        sg_persist --no-inquiry --out --preempt-abort --param-rk=0x2 --param-sark=0x1 --prout-type=5 "$other" || return
    dd if="$other" iflag=direct bs=1M skip=$((raw_lba / 2048)) count=16 status=none | sha256sum > /run/then
    ! wait $loading || return
    dd if="$other" iflag=direct bs=1M skip=$((raw_lba / 2048)) count=16 status=none | sha256sum > /run/later
    cmp /run/then /run/later
}

unfenced() { sg_persist --no-inquiry --out --clear --param-rk=0x2 "$other" && raw_write "$disk"; }

# A database fails over. Each node has its own session and disk of the volume, mounts its file system and runs a server
# with a process tree of its own, as on a machine of its own; fence_scsi fences, as under Pacemaker.

clients=3

# Sets $node1_disk and $node2_disk.
shared_disks() {
    ask database && programs=$reply && iscsiadm -m session --rescan && mkdir -p /dev/shm &&
        mount -t tmpfs tmpfs /dev/shm || return
    both() { node1_disk=$(disk_of_initiator "$name" 3) && node2_disk=$(disk_of_initiator "$second" 3); }
    within 30 both
}

fence_scsi() { agent fence_scsi "$@"; }

# The agent keeps the key of its node in a file; here the second node is the one whose key stays.
nodes_join() {
    fence_scsi --action=on --key=1 --devices="$node1_disk" --aptpl &&
        fence_scsi --action=on --key=2 --devices="$node2_disk" --aptpl && keys_are "$node2_disk" 0x1 0x2 &&
        sg_persist --no-inquiry --in --read-reservation "$node2_disk" > /run/reservation &&
        holds 'Key=0x1' /run/reservation && holds 'Write Exclusive, registrants only' /run/reservation
}

sql() { # NODE OPTIONS
    stdbuf -oL "$programs/psql" -h "/run/node$1" -U postgres -qAtX -v ON_ERROR_STOP=1 "${@:2}"
}

mounted() { # NODE DEVICE
    mkdir -p "/mnt/node$1" "/run/node$1" && mount "$2" "/mnt/node$1" &&
        chown -R postgres: "/mnt/node$1/pg" "/run/node$1"
}

# Sets $server.
database_started() { # NODE
    unshare --pid --ipc --fork --kill-child setpriv --reuid=postgres --regid=postgres --clear-groups \
        "$programs/postgres" -D "/mnt/node$1/pg" -k "/run/node$1" > "/run/node$1/log" 2>&1 &
    server=$!
    answers() { sql "$1" -c 'select 1' 2> /run/answer; }
    within 60 answers "$1" || { cat /run/answer "/run/node$1/log"; return 1; }
}

# Commits rows, and notes the number of each once its COMMIT has returned. An error ends it.
commit_rows() { # NODE FIRST COUNT
    local row="insert into entry values (&, repeat(md5('&'), 8));\\n\\\\echo &"
    seq "$2" $(($2 + $3 - 1)) | sed "s/.*/$row/" | sql "$1" > "/run/node$1/noted.$2"
}

noted() { # NODE COMMITS
    [ "$(cat "/run/node$1/noted."* | wc -l)" -ge "$2" ]
}

node1_works() {
    mounted 1 "$node1_disk" && database_started 1 &&
        sql 1 -c 'create table entry (id bigint primary key, body text not null)' || return
    local client
    committing=()
    for client in $(seq $clients); do
        commit_rows 1 "${client}000000" 900000 &
        committing+=($!)
    done
    within 60 noted 1 100
}

scribble() { dd if=/dev/urandom of="$1" bs=4k count=1 seek=$((70 << 8)) oflag=direct status=none; }

# Its clients and its server end with errors, it cannot even write without its file system, and nothing of it lands.
node1_fenced() {
    local before client
    fence_scsi --action=off --key=1 --devices="$node2_disk" && ask checksum && before=$reply &&
        keys_are "$node2_disk" 0x2 || return
    ended() { ! kill -0 $server 2> /dev/null; }
    within 60 ended
    cat /run/node1/log
    for client in "${committing[@]}"; do
        ended && ! wait "$client" || return
    done
    umount /mnt/node1 && ! scribble "$node1_disk" && dmesg > /run/dmesg &&
        holds 'sd [0-9:]*:3: reservation conflict' /run/dmesg && ask checksum && is contents "$before" "$reply"
}

# Every commit that was noted is there. Each client may have had one more under way.
nothing_lost() {
    local more
    sort /run/node*/noted.* > /run/noted && sql 2 -c 'select id from entry' | sort > /run/found
    more=$(comm -13 /run/noted /run/found | wc -l)
    echo "$(wc -l < /run/noted) commits noted, $more more are there"
    is "lost commits" '' "$(comm -23 /run/noted /run/found | xargs)" && [ "$more" -le $clients ] &&
        is "wrong rows" 0 "$(sql 2 -c "select count(*) from entry where body <> repeat(md5(id::text), 8)")"
}

node2_takes_over() {
    mounted 2 "$node2_disk" && database_started 2 && cat /run/node2/log && nothing_lost &&
        commit_rows 2 9000000 30 && nothing_lost
}

node2_is_right() {
    "$programs/pg_amcheck" -h /run/node2 -U postgres -d postgres --table=entry --heapallindexed --rootdescend \
        --install-missing && kill -INT "$(pgrep -P $server)" && wait $server && unmounted_clean /mnt/node2 "$node2_disk"
}

nodes_leave() {
    sg_persist --no-inquiry --out --clear --param-rk=0x2 "$node2_disk" && scribble "$node1_disk" &&
        ask quoin unmap database --host trial --force
}
