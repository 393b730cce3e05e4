#!/bin/bash
# What a Linux host does with volumes of the array through the kernel's own iSCSI initiator. Runs as root in the
# guest; tells the trial about each check on the second serial port, and asks it there to do things to the array.
# Commands and what they say go to the console, whose log the trial keeps.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C

portal=192.0.2.100:3260
second_portal=192.0.2.101:3260
name=iqn.2026-11.test:trial
files_bytes=$((320 << 20)) # of the volume; what is above is used without a file system
raw_lba=$((400 << 11))     # in blocks of 512

exec 3<> /dev/ttyS1
stty -F /dev/ttyS1 raw -echo

tell() { printf '%s\n' "$*" >&3; }

# Has the trial do something; its answer is in $reply.
ask() {
    echo "ask $*"
    tell "ask $*"
    IFS= read -r -t 240 reply <&3 || reply="error no answer"
    echo "$reply"
    local verdict=${reply%% *}
    reply=${reply#* }
    [ "$verdict" = ok ]
}

# check NAME COMMAND...: one line for the trial, everything for the console.
check() {
    local what=$1 started=$SECONDS verdict
    shift
    "$@" > /run/said 2>&1
    verdict=$?
    echo "--- $what: $* -> $verdict, $((SECONDS - started)) s"
    cat /run/said
    if [ $verdict = 0 ]; then
        tell "pass $what"
    else
        tell "fail $what: $(tail -n 3 /run/said | tr '\n' ' ' | cut -c 1-400)"
    fi
    return $verdict
}

# The same for what everything after it needs.
must() { check "$@" || finish; }

finish() {
    dmesg | tail -n 80
    tell end
    # The trial ends the machine when it has read that.
    sleep 60
    exit
}

# within SECONDS COMMAND...: until it succeeds.
within() {
    local limit=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $limit ] || { echo "in vain: $*"; return 1; }
        sleep 0.3
    done
}

holds() { # PATTERN FILE
    grep -q -- "$1" "$2" || { echo "no '$1' in $2:"; cat "$2"; return 1; }
}

is() { # WHAT WANTED FOUND
    [ "$2" = "$3" ] || { echo "$1 is '$3', not '$2'"; return 1; }
}

node() { iscsiadm -m node -T "$iqn" -p "$portal" "$@"; }

setting() { node -o update -n "$1" -v "$2"; }

disk_of() { # LUN
    local found
    for found in /sys/class/scsi_disk/*:"$1"/device/block/*; do
        [ -e "$found" ] && echo "/dev/${found##*/}" && return
    done
    return 1
}

no_disk() { ! disk_of "$1"; }

# Sets $disk.
find_disk() { within 60 disk_of "$1" && disk=$(disk_of "$1"); }

logged_in() { holds LOGGED_IN "$(echo /sys/class/iscsi_session/session*/state)"; }

log_out() {
    node --logout && within 30 no_disk 1
}

queue() { cat "/sys/block/${disk##*/}/queue/$1"; }

writes_done() { awk '{ print $5 }' "/sys/block/${disk##*/}/stat"; }

writes_go_on() {
    local before
    before=$(writes_done)
    more() { [ "$(writes_done)" -gt "$before" ]; }
    within 90 more
}

recovered() { within 90 logged_in && writes_go_on; }

no_errors() {
    ! dmesg | grep -iE 'I/O error|critical (medium|target) error|EXT4-fs (error|warning)|offlined|rejecting I/O|BUG:|Oops'
}

set_up() {
    ip link set lo up
    ip link set eth0 up
    ip addr add 192.0.2.15/24 dev eth0
    modprobe -a iscsi_tcp sd_mod sg ext4 || return
    mount -t tmpfs tmpfs /etc/iscsi
    echo "InitiatorName=$name" > /etc/iscsi/initiatorname.iscsi
    cat > /etc/iscsi/iscsid.conf << END
node.startup = manual
node.session.timeo.replacement_timeout = 120
node.session.initial_login_retry_max = 8
node.session.scan = auto
node.session.auth.authmethod = CHAP
node.session.auth.username = guest
node.session.auth.password = secret-of-guest
node.session.auth.username_in = array
node.session.auth.password_in = secret-of-array
discovery.sendtargets.auth.authmethod = CHAP
discovery.sendtargets.auth.username = guest
discovery.sendtargets.auth.password = secret-of-guest
END
    mkdir -p /run/lock/iscsi /mnt/files /mnt/wide
    iscsid -f > /run/iscsid.log 2>&1 &
    ready() { iscsiadm -m iface; }
    within 20 ready && ask iqn && iqn=$reply
}

discovery() {
    iscsiadm -m discovery -t sendtargets -p "$portal" > /run/found || return
    holds " $iqn\$" /run/found
}

# With a wrong secret on either side there is no session.
wrong_secrets() {
    iscsiadm -m node -o new -T "$iqn" -p "$portal" && setting node.session.auth.password secret-of-other &&
        ! node --login && setting node.session.auth.password secret-of-guest &&
        setting node.session.auth.password_in secret-of-other && ! node --login &&
        node -o delete && ask quoin events -o json && [[ $reply = *'response is wrong'* ]]
}

# Discovery names the portal as the host knows it; the guest reaches it at an address of its own.
first_login() {
    iscsiadm -m node -o new -T "$iqn" -p "$portal" && setting node.session.err_timeo.lu_reset_timeout 60 &&
        node --login
}

inquiry() {
    sg_inq "$disk" > /run/inquiry && holds 'Vendor identification: QUOIN' /run/inquiry &&
        holds 'PQual=0 .*PDT=0' /run/inquiry
}

pages() {
    is "list of pages" "00 00 00 08 00 80 83 86 8f b0 b1 b2" \
        "$(sg_vpd --page=0 --raw "$disk" | od -An -tx1 | xargs)"
}

serial_number() {
    ask quoin volume show trial -o json || return
    local uuid
    uuid=$(sed -n 's/.*"uuid": *"\([^"]*\)".*/\1/p' <<< "$reply" | tr -d -)
    is "length of the uuid" 32 ${#uuid} &&
        is "serial number" "$uuid" "$(sg_vpd --page=sn "$disk" | sed -n 's/.*serial number: *//p')"
}

designators() {
    sg_vpd --page=di "$disk" > /run/designators && holds 'designator type: NAA' /run/designators &&
        holds "$iqn" /run/designators
}

limits() {
    sg_vpd --page=bl "$disk" > /run/limits && ! grep -qE 'Maximum unmap LBA count: (0|-1)( |$)' /run/limits &&
        holds 'Maximum write same length: 0x' /run/limits && sg_vpd --page=bdc "$disk" > /run/characteristics &&
        holds 'Non-rotating medium' /run/characteristics
}

provisioning() {
    sg_vpd --page=lbpv "$disk" > /run/provisioning || return
    local bit
    for bit in '(LBPU): 1' '(LBPWS): 1' '(LBPWS10): 1' '(LBPRZ): 1'; do
        holds "$bit" /run/provisioning || return
    done
}

capacity() { # BYTES BLOCK
    sg_readcap --long "$disk" > /run/capacity && holds "Logical block length=$2 bytes" /run/capacity &&
        holds "Device size: $1 bytes" /run/capacity && holds 'lbpme=1, lbprz=1' /run/capacity
}

kernels_view() { # BYTES BLOCK
    local entry
    entry=$(echo "/sys/block/${disk##*/}/device/scsi_disk/"*)
    is size $(($1 / 512)) "$(cat "/sys/block/${disk##*/}/size")" &&
        is "logical block" "$2" "$(queue logical_block_size)" &&
        is rotational 0 "$(queue rotational)" &&
        is "cache type" "write through" "$(cat "$entry/cache_type")" &&
        is "provisioning mode" unmap "$(cat "$entry/provisioning_mode")" &&
        [ "$(queue discard_max_bytes)" -gt 0 ]
}

small_commands() {
    sg_turs "$disk" && sg_requests "$disk" && sg_luns "$disk" && sg_modes --page=8 "$disk" && sg_sync "$disk"
}

make_files() {
    local number
    mkdir "$1" || return
    for number in $(seq 12); do
        dd if=/dev/urandom of="$1/$number" bs=$((number * 7919)) count=24 status=none || return
    done
    sync && (cd / && sha256sum "$1"/*) > "/run/sums$(tr / _ <<< "$1")"
}

# From the volume, not from memory.
files_are_right() {
    echo 3 > /proc/sys/vm/drop_caches
    sha256sum --quiet -c "/run/sums$(tr / _ <<< "$1")"
}

new_files() { # DEVICE DIRECTORY [SIZE]
    mkfs.ext4 -F -E nodiscard "$1" ${3:+"$3"} > /run/mkfs && mkfs.ext4 -F "$1" ${3:+"$3"} && mount "$1" "$2" &&
        make_files "$2/made"
}

unmounted_clean() { # DIRECTORY DEVICE
    umount "$1" && e2fsck -fn "$2"
}

# With replace=exec, fio takes the place of the shell that calls this.
load() { # DIRECTORY OPTIONS
    ${replace:-} fio --name=load --directory="$1" --filename=load --bsrange=4k-64k --rw=randwrite \
        --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --verify_backlog=128 "${@:2}"
}

quick_load() { load /mnt/files --size=6m --iodepth=16; }

load_in_background() {
    replace=exec load /mnt/files --size=16m --iodepth=16 --time_based --runtime=3600 > /run/load 2>&1 &
    load_process=$!
    writes_go_on
}

# fio ends with 128 when it is told to stop, and with 1 after an error.
load_is_over() {
    kill $load_process
    wait $load_process
    local ended=$?
    cat /run/load
    is "end of fio" 128 $ended && holds 'err= 0' /run/load
}

# A megabyte above the file system, from $raw_lba on, is as /run/pattern says.
pattern_there() {
    dd if="$disk" iflag=direct bs=64k skip=$((raw_lba / 128)) count=16 status=none | cmp - /run/pattern
}

# Sets it to random bytes.
put_pattern() {
    dd if=/dev/urandom of=/run/pattern bs=64k count=16 status=none &&
        dd if=/run/pattern of="$disk" oflag=direct bs=64k seek=$((raw_lba / 128)) status=none && pattern_there
}

# Changes blocks of the pattern; their content comes from standard input.
expect_blocks() { # FIRST COUNT
    dd of=/run/pattern bs=512 seek="$1" count="$2" iflag=fullblock conv=notrunc status=none
}

unmap() {
    put_pattern && sg_unmap --force --lba=$raw_lba --num=2048 "$disk" && expect_blocks 0 2048 < /dev/zero &&
        pattern_there
}

unmap_a_part() {
    put_pattern && sg_unmap --force --lba=$((raw_lba + 5)) --num=1000 "$disk" && expect_blocks 5 1000 < /dev/zero &&
        pattern_there
}

write_same() {
    put_pattern && sg_write_same --16 --unmap --lba=$raw_lba --num=1024 "$disk" &&
        expect_blocks 0 1024 < /dev/zero && pattern_there &&
        printf 'the same block again and again.\n%.0s' {1..16} > /run/block &&
        sg_write_same --16 --in=/run/block --xferlen=512 --lba=$((raw_lba + 3)) --num=2000 "$disk" &&
        yes 'the same block again and again.' | expect_blocks 3 2000 && pattern_there
}

discard() {
    put_pattern && blkdiscard -f -o $((raw_lba * 512)) -l $((2048 * 512)) "$disk" &&
        expect_blocks 0 2048 < /dev/zero && pattern_there
}

digests() {
    setting "node.conn[0].iscsi.HeaderDigest" CRC32C && setting "node.conn[0].iscsi.DataDigest" CRC32C &&
        setting "node.conn[0].timeo.noop_out_interval" 3 && setting "node.conn[0].timeo.noop_out_timeout" 5 &&
        node --login && iscsiadm -m session -P 2 > /run/session &&
        holds 'HeaderDigest: CRC32C' /run/session && holds 'DataDigest: CRC32C' /run/session
}

mounted_again() {
    find_disk 1 && mount -o discard "$disk" /mnt/files && files_are_right /mnt/files/made
}

array_killed() {
    ask kill && sleep 2 && ask start && recovered
}

# The array asks its initiators to log out, stops, and its drives are checked.
array_stopped() {
    ask stop && ask start && recovered
}

resets_seen() { dmesg | grep -c 'device reset occurred'; }

unit_reset() {
    local before
    before=$(resets_seen)
    more_resets() { [ "$(resets_seen)" -gt "$before" ]; }
    sg_reset -d "$disk" && writes_go_on && within 10 more_resets
}

# The connection goes silent, as when a path dies: the initiator gives up on it and logs in anew while the array
# still has the old session.
reinstated() {
    ask logged 'session replaced by a new login' && local before=$reply || return
    ask silence || return
    replaced() { ask logged 'session replaced by a new login' && [ "$reply" -gt "$before" ]; }
    within 60 replaced && recovered
}

luns_changed() {
    ask quoin volume create wide --size 128M --block-size 4096 && ask quoin map wide --host trial --lun 2 || return
    told() {
        dd if="$disk" of=/dev/null iflag=direct bs=4k count=1 status=none &&
            dmesg | grep -q 'LUN assignments on this target have changed'
    }
    within 10 told && no_disk 2
}

rescanned() { iscsiadm -m session --rescan && within 30 disk_of 2; }

wide_files() {
    new_files "$disk" /mnt/wide && load /mnt/wide --size=2m --iodepth=8 && files_are_right /mnt/wide/made
}

taken_away() {
    # The guest has a session.
    ask quoin unmap wide --host trial --force || return
    # Silent, since what fails here has to.
    ! dd if="$(disk_of 2)" of=/dev/null iflag=direct bs=4k count=1 && writes_to_files
}

writes_to_files() { make_files /mnt/files/more && files_are_right /mnt/files/more; }

# The array sees so many connections.
nbd_connected() { ask quoin export show net -o json && [ "$(grep -o '"peer"' <<< "$reply" | wc -l)" = "$1" ]; }

nbd_attached() { # CONNECTIONS
    nbd-client -N net -C "$1" "${portal%:*}" 10809 /dev/nbd0 && within 10 nbd_connected "$1" &&
        is "size" $((64 << 20)) "$(blockdev --getsize64 /dev/nbd0)"
}

nbd_detached() {
    free() { [ ! -e /sys/block/nbd0/pid ]; }
    nbd-client -d /dev/nbd0 && within 30 free
}

# What was written is there after the device was detached, which keeps nothing of it, and attached anew.
nbd_kept() { # CONNECTIONS
    nbd_attached "$1" && dd if=/dev/urandom of=/run/made bs=1M count=8 status=none &&
        dd if=/run/made of=/dev/nbd0 bs=256k seek=$((64 * $1)) oflag=direct conv=fsync status=none &&
        nbd_detached && nbd_attached "$1" &&
        dd if=/dev/nbd0 of=/run/found bs=256k skip=$((64 * $1)) count=32 iflag=direct status=none &&
        cmp /run/made /run/found && nbd_detached
}

nbd_set_up() { modprobe nbd && ask quoin volume create net --size 64M && ask quoin export create net; }

# The kernel spreads requests over both connections, and a flush over one is for all.
nbd_files() {
    nbd_attached 2 && new_files /dev/nbd0 /mnt/wide && load /mnt/wide --size=2m --iodepth=8 &&
        files_are_right /mnt/wide/made && unmounted_clean /mnt/wide /dev/nbd0 && nbd_detached
}

# LUN 1 as a block device and what fio writes to it, above the file system, from $raw_lba on.
raw_load() { # DEVICE OPTIONS
    ${replace:-} fio --name=raw --filename="$1" --offset=$((raw_lba * 512)) --size=16m --bsrange=4k-64k --rw=randwrite \
        --ioengine=libaio --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1 --verify_backlog=128 "${@:2}"
}

compare_and_write() {
    local missed
    put_pattern && dd if=/run/pattern of=/run/both bs=512 count=4 status=none &&
        dd if=/dev/urandom of=/run/new bs=512 count=4 status=none && cat /run/new >> /run/both &&
        sg_compare_and_write --in=/run/both --lba=$raw_lba --num=4 "$disk" && expect_blocks 0 4 < /run/new &&
        pattern_there || return
    # What it compares with is not there any more.
    sg_compare_and_write --in=/run/both --lba=$raw_lba --num=4 "$disk"
    missed=$?
    is "exit code of a miscompare" 14 $missed && pattern_there
}

extended_copy() {
    local generic
    generic=/dev/$(ls "/sys/block/${disk##*/}/device/scsi_generic")
    sg_vpd --page=tpc "$disk" && put_pattern &&
        sg_xcopy if="$generic" of="$generic" bs=512 skip=$raw_lba seek=$((raw_lba + 1024)) count=1024 &&
        dd if=/run/pattern bs=512 count=1024 status=none | expect_blocks 1024 1024 && pattern_there
}

target_ports() {
    sg_rtpg --decode "$disk" > /run/ports && cat /run/ports && holds 'active/optimized' /run/ports &&
        is "ports" "0x01 0x02" "$(grep -o '^ *0x0[0-9]*$' /run/ports | xargs)"
}

stranger() {
    # A record with secrets in it insists on CHAP, whatever method it names.
    sed -i /auth/d /etc/iscsi/iscsid.conf
    iscsiadm -m iface -I stranger -o new &&
        iscsiadm -m iface -I stranger -o update -n iface.initiatorname -v iqn.2026-11.test:stranger &&
        iscsiadm -m node -o new -T "$iqn" -p "$portal" -I stranger &&
        node -I stranger --login || return
    sleep 2
    iscsiadm -m session -P 3
    ask quoin session list -o json
    [[ $reply = *iqn.2026-11.test:stranger* ]] && ! ls -d /sys/class/scsi_disk/* && node -I stranger --logout
}

for part in cluster paths queues; do
    . "/run/checks/$part.sh"
done

must 'the guest has a network and an initiator' set_up
must 'discovery names the target' discovery
check 'wrong secrets are refused, by either side' wrong_secrets
must 'login' first_login
must 'LUN 1 is a disk' find_disk 1
check 'INQUIRY' inquiry
check 'page 00: list of pages' pages
check "page 80: serial number is the volume's uuid" serial_number
check 'page 83: designators' designators
check 'pages B0 and B1: limits, characteristics' limits
check 'page B2: provisioning' provisioning
check 'READ CAPACITY' capacity $((512 << 20)) 512
check 'the kernel sees a thin disk without a volatile cache' kernels_view $((512 << 20)) 512
check 'TEST UNIT READY, REQUEST SENSE, REPORT LUNS, MODE SENSE, SYNCHRONIZE CACHE' small_commands
must 'ext4 with discard, files' new_files "$disk" /mnt/files $((files_bytes >> 10))k
check 'files read back' files_are_right /mnt/files/made
check 'fio, every block verified' quick_load
check 'UNMAP' unmap
check "UNMAP of a range that is no multiple of the array's block" unmap_a_part
check 'WRITE SAME, with and without UNMAP' write_same
check 'discard by the kernel' discard
check 'COMPARE AND WRITE' compare_and_write
check 'EXTENDED COPY' extended_copy
check 'REPORT TARGET PORT GROUPS' target_ports
check 'e2fsck' unmounted_clean /mnt/files "$disk"
must 'logout' log_out

must 'login with header and data digests' digests
must 'files are there after logout and login' mounted_again
must 'load with verification begins' load_in_background
check 'kill -9 of the array under load: the session comes back' array_killed
check 'LUN reset under load' unit_reset
check 'a silent path under load: the session is reinstated' reinstated
check 'an orderly stop under load: quoin check is content, the session comes back' array_stopped
check 'the load saw no error, and what it read back was right' load_is_over
check 'a new mapping is told: REPORTED LUNS DATA HAS CHANGED' luns_changed
check 'the new LUN appears after a rescan' rescanned
must 'LUN 2 is a disk' find_disk 2
check 'READ CAPACITY of blocks of 4096 bytes' capacity $((128 << 20)) 4096
check 'the kernel sees blocks of 4096 bytes' kernels_view $((128 << 20)) 4096
check 'ext4 and fio on blocks of 4096 bytes' wide_files
check 'e2fsck of blocks of 4096 bytes' unmounted_clean /mnt/wide "$disk"
must 'a volume is exported over NBD' nbd_set_up
check 'NBD: what is written is there after detach and attach' nbd_kept 1
check 'NBD: the same over two connections' nbd_kept 2
check 'NBD: ext4 and fio over two connections' nbd_files
check 'the kernel logged no error' no_errors
check 'a LUN taken away is gone, the other is not' taken_away
find_disk 1 > /dev/null
check 'files are right after all that' files_are_right /mnt/files/made
check 'e2fsck after all that' unmounted_clean /mnt/files "$disk"
must 'another node of a cluster' second_node
check 'a node that was preempted does not write any more' fenced
check 'that is so after a kill of the array' fenced_still
check 'nothing of a load lands after its node was preempted' fenced_under_load
check 'a reservation that was cleared keeps nobody out' unfenced
check 'a database on a volume that two nodes see' shared_disks &&
    check 'fence_scsi registers two nodes and reserves' nodes_join &&
    check 'PostgreSQL commits at node 1' node1_works &&
    check 'fence_scsi fences node 1 under load: its database ends, and nothing of it lands' node1_fenced &&
    check 'PostgreSQL at node 2 has every commit, and goes on' node2_takes_over &&
    check 'pg_amcheck and e2fsck after the failover' node2_is_right &&
    check 'node 1 may write again once the reservation is cleared' nodes_leave
must 'the other node leaves' second_logout
must 'logout once more' log_out
must 'sixteen sessions' sessions_set_up
check 'TASK SET FULL: the kernel sends fewer commands at a time, and no I/O fails' queue_full
must 'the sessions go' sessions_gone
must 'two paths to one disk' paths_set_up
check 'both paths are used' under_load each_path_used
check 'a path is cut under load, and comes back' under_load cut_and_mended
check 'fence_mpath registers both paths, and reserves' paths_registered
check 'a portal is disabled under load, and enabled' under_load disabled_and_enabled
check 'a node is fenced with all its paths, joins anew, and fence_mpath fences the other' paths_fenced
check 'the paths go' paths_gone
check 'an unknown initiator name sees no LUN' stranger
finish
