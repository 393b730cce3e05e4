#!/bin/bash
# PostgreSQL on a volume; its array is killed under load twice, once together with PostgreSQL and its host.
. "$(dirname "$0")/array.sh"

deploy/with_tools.sh test cargo build --profile "$PROFILE" --locked --workspace --bin quoin --bin quoin-trial
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
exec $sudo "$(dirname "$quoin")/quoin-trial" postgres --rounds 2 --seconds 10 --examine-every 2
