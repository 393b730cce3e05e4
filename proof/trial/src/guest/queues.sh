# More commands than the array takes at a time for a LUN. For checks.sh, which reads this.

# The array takes 256 commands of a session and 2048 for a LUN: with so many sessions, 128 of each for the LUN.
sessions=16
depth=160

disks() { echo /sys/class/scsi_disk/*:1/device; }

sessions_set_up() {
    all_there() { [ "$(disks | wc -w)" = $sessions ]; }
    node -o new && setting node.session.nr_sessions $sessions && setting node.session.cmds_max 256 &&
        setting node.session.queue_depth $depth && node --login && within 60 all_there
}

sessions_gone() { log_out && node -o delete; }

# Has the kernel record every command that ends with TASK SET FULL.
trace_full() {
    local event=/sys/kernel/tracing/events/scsi/scsi_dispatch_cmd_done
    mount -t tracefs tracefs /sys/kernel/tracing && echo 'result == 0x28' > $event/filter && echo 1 > $event/enable
}

full_seen() { grep -c TASK_SET_FULL /sys/kernel/tracing/trace; }

# Each session writes to a part of its own, and verifies it.
write_by_all() {
    local jobs=() found start=$((raw_lba * 512))
    for found in /sys/class/scsi_disk/*:1/device/block/*; do
        jobs+=("--name=${found##*/}" "--filename=/dev/${found##*/}" "--offset=$start")
        start=$((start + (2 << 20)))
    done
    fio --ioengine=libaio --direct=1 --thread --rw=randwrite --bs=4k --size=2m --iodepth=$depth --verify=crc32c \
        --verify_fatal=1 --group_reporting "${jobs[@]}"
}

least_depth() { cat /sys/class/scsi_disk/*:1/device/queue_depth | sort -n | head -n 1; }

# A limit of the volume keeps commands where they count. What waits for it does so for less than the five seconds after
# which the limit itself would lead to TASK SET FULL: 2048 / 500.
queue_full() {
    trace_full && ask quoin qos --volume trial --iops 500 || return
    dmesg --clear
    write_by_all > /run/written 2>&1 &
    local writing=$! went ended
    seen() { [ "$(full_seen)" -gt 50 ]; }
    fewer() { [ "$(least_depth)" -lt $depth ]; }
    within 60 seen && ask quoin qos --volume trial && within 60 fewer
    went=$?
    ask quoin qos --volume trial --off
    wait $writing
    ended=$?
    echo "TASK SET FULL was seen $(full_seen) times; the least queue depth is $(least_depth)"
    umount /sys/kernel/tracing
    cat /run/written
    [ $went = 0 ] && is "end of fio" 0 $ended && holds 'err= 0' /run/written && no_errors
}
