#!/bin/bash
# Starts an array with a demo volume, making what is not there yet, and says how to attach it.
. "$(dirname "$0")/array.sh"
initiator=iqn.2026-11.io.quoin:demo-host

deploy/with_tools.sh build cargo build --profile "$PROFILE" --locked --workspace --bin quoin

mkdir -p "$VAR"
[ -e "$VAR/quoin.toml" ] || "$quoin" init --data "$VAR" --drives 4 --drive-size 8G > /dev/null

if ! pid=$(running); then
    setsid "$quoin" serve --data "$VAR" --iscsi "$ISCSI" --api "$API" < /dev/null >> "$log" 2>&1 &
    pid=$!
    echo "$pid" > "$pid_file"
fi

export QUOIN_DATA=$VAR
unset QUOIN_API QUOIN_TOKEN_FILE
is_ready() { "$quoin" status -o json 2>/dev/null | tr -d ' \n' | grep -q '"ready":true'; }
for _ in $(seq 600); do
    is_ready && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
done
is_ready || { echo "the array did not become ready; $log says:" >&2; tail -n 15 "$log" >&2; exit 1; }

"$quoin" volume show demo > /dev/null 2>&1 || "$quoin" volume create demo --size 4G > /dev/null
"$quoin" host show demo > /dev/null 2>&1 || "$quoin" host create demo --initiator "$initiator" > /dev/null
"$quoin" mappings -o json | grep -q '"demo"' || "$quoin" map demo --host demo --lun 1 > /dev/null

iqn=$("$quoin" status -o json | sed -n 's/.*"iqn": *"\([^"]*\)".*/\1/p' | head -n 1)
image="driver=iscsi,transport=tcp,portal=$ISCSI,target=$iqn,lun=1,initiator-name=$initiator"
cat << END

The array is up (process $pid, data in $VAR, log in $log).
Volume demo is LUN 1 of $iqn at $ISCSI, for initiator $initiator.

Attach it with the kernel's initiator (Debian package open-iscsi):
  sudo iscsiadm -m iface -I quoin -o new
  sudo iscsiadm -m iface -I quoin -o update -n iface.initiatorname -v $initiator
  sudo iscsiadm -m discovery -t sendtargets -p $ISCSI -I quoin
  sudo iscsiadm -m node -T $iqn -p $ISCSI -I quoin --login

or use it from QEMU (Debian packages qemu-utils, qemu-block-extra):
  qemu-img info --image-opts $image
  qemu-io --image-opts $image -c 'write -P 7 0 64k' -c 'read -P 7 0 64k'

Look at it:  $quoin --data $VAR status
Stop it:     make down
END
