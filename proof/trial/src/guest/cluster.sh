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
