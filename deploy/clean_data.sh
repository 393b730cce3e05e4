#!/bin/bash
# Wipes the data of the demo array, and nothing that an array did not make.
. "$(dirname "$0")/array.sh"

if pid=$(running); then
    echo "the array runs as process $pid: make down" >&2
    exit 1
fi
[ -e "$VAR/quoin.toml" ] || { echo "there is no array in $VAR"; exit 0; }
rm -rf -- "$VAR"
echo "wiped $VAR"
