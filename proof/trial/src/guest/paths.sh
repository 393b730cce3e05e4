# Two paths to one disk, and dm-multipath over them. For checks.sh, which reads this.

over_both() {
    local one
    for one in "$portal" "$second_portal"; do
        iscsiadm -m node -T "$iqn" -p "$one" "$@" || return
    done
}

# Two portals, and every I/O on the next path.
paths_set_up() {
    modprobe -a dm_multipath dm_round_robin || return
    cat > /etc/multipath.conf << END
defaults {
    find_multipaths off
    user_friendly_names no
    polling_interval 2
    path_grouping_policy multibus
    path_selector "round-robin 0"
    rr_min_io_rq 1
    no_path_retry 30
    reservation_key file
}
END
    mkdir -p /run/udev && /lib/systemd/systemd-udevd --daemon && udevadm trigger && multipathd || return
    iscsiadm -m node
    over_both -o new && over_both -o update -n node.session.timeo.replacement_timeout -v 5 && over_both --login &&
        within 60 paths_are 2 &&
        mapped=/dev/mapper/$(multipath -ll | awk '/QUOIN/ { print $1; exit }') && [ -b "$mapped" ]
}

paths_are() {
    multipath -ll > /run/paths 2>&1
    [ "$(grep -c 'active ready  *running' /run/paths)" = "$1" ]
}

path_writes() { awk '{ print $5 }' /sys/class/scsi_disk/*:1/device/block/*/stat; }

# Each path gets its share.
each_path_used() {
    local before now path
    mapfile -t before <<< "$(path_writes)"
    more_on_each() {
        mapfile -t now <<< "$(path_writes)"
        echo "writes by path: ${before[*]}, now ${now[*]}"
        for path in "${!before[@]}"; do
            [ "${now[path]}" -gt $((before[path] + 20)) ] || return
        done
    }
    within 60 more_on_each
}

mapped_writes() { awk '{ print $5 }' "/sys/block/$(basename "$(readlink -f "$mapped")")/stat"; }

goes_on() {
    local before
    before=$(mapped_writes)
    more() { [ "$(mapped_writes)" -gt $((before + 20)) ]; }
    within 90 more
}

# Has something happen under a load of the mapped device, which sees no error and no wrong block.
under_load() { # COMMAND...
    replace=exec raw_load "$mapped" --time_based --runtime=3600 > /run/raw 2>&1 &
    local loading=$!
    "$@"
    local went=$?
    cat /run/paths
    kill $loading
    wait $loading
    local ended=$?
    cat /run/raw
    [ $went = 0 ] && is "end of fio" 128 $ended && holds 'err= 0' /run/raw
}

cut_and_mended() {
    goes_on && ask cut && within 60 paths_are 1 && goes_on && ask mend && within 90 paths_are 2 && each_path_used
}

disabled_and_enabled() {
    goes_on && ask disable && within 60 paths_are 1 && goes_on && ask enable && within 90 paths_are 2 && each_path_used
}

fence_mpath() { agent fence_mpath --devices="$mapped" "$@"; }

# Registers the paths of the mapped device under one key, and reserves it.
paths_registered() { fence_mpath --action=on --plug=a && keys_are "$mapped" 0xa 0xa && raw_write "$mapped"; }

persist() { mpathpersist --out "$@" "$mapped"; }

# Another node, which uses one path, preempts both registrations of the first; that one joins anew and fences the other.
# As both nodes are one machine here, multipathd first takes the other's path for its own, and registers it too.
paths_fenced() {
    second_login && within 30 paths_are 3 && multipathd del path "${other##*/}" && within 30 paths_are 2 &&
        sg_persist --no-inquiry --out --register-ignore --param-sark=0xb --param-aptpl "$other" &&
        keys_are "$other" 0xa 0xa 0xb &&
        sg_persist --no-inquiry --out --preempt-abort --param-rk=0xb --param-sark=0xa --prout-type=5 "$other" &&
        keys_are "$other" 0xb && raw_write "$other" && ! raw_write "$mapped" &&
        persist --register-ignore --param-sark=0xa && keys_are "$other" 0xa 0xa 0xb &&
        fence_mpath --action=off --plug=b && keys_are "$mapped" 0xa 0xa && raw_write "$mapped" &&
        ! raw_write "$other" && persist --clear --param-rk=0xa && raw_write "$other" && second_logout
}

paths_gone() {
    multipath -F && over_both --logout && within 30 no_disk 1
}
