#!/bin/bash
# Stops the array and waits for its end. Data stays.
. "$(dirname "$0")/array.sh"

if ! pid=$(running); then
    rm -f "$pid_file"
    echo "the array does not run"
    exit 0
fi
kill -TERM "$pid"
for _ in $(seq 600); do
    if ! running > /dev/null; then
        rm -f "$pid_file"
        echo "the array has stopped; its data is in $VAR"
        exit 0
    fi
    sleep 0.1
done
echo "process $pid did not stop within 60 s; see $log" >&2
exit 1
