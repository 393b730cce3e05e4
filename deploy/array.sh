# Sourced by the scripts beside it: where the demo array is, and whether it runs.
# Set by the Makefile: VAR (data directory), ISCSI and API (addresses), PROFILE (release or dev).
set -euo pipefail
cd "$(dirname "$0")/.."

case ${PROFILE:=release} in dev) directory=debug ;; *) directory=$PROFILE ;; esac
quoin=$(realpath -m "${CARGO_TARGET_DIR:-target}/$directory/quoin")
pid_file=$VAR/quoin.pid
log=$VAR/quoin.log

# Prints the process id of the running array; fails if there is none.
running() {
    local pid
    pid=$(cat "$pid_file" 2>/dev/null) || return 1
    case $(readlink "/proc/$pid/exe" 2>/dev/null) in */quoin | */quoin\ *) echo "$pid" ;; *) return 1 ;; esac
}
