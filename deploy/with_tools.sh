#!/bin/bash
# Runs a command of the project with its tools in place: with_tools.sh build|test COMMAND...
# A Rust toolchain is installed, by its official installer, only where none that is new enough is found.
set -euo pipefail
cd "$(dirname "$0")/.."

deploy/packages.sh "${1:?build or test}"
shift

wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

is_new_enough() {
    local found
    found=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
    [ -n "$found" ] && printf '%s\n%s\n' "$wanted" "$found" | sort --version-sort --check=quiet
}

if ! is_new_enough; then
    if ! command -v rustup > /dev/null; then
        echo "installing Rust by its official installer, https://rustup.rs"
        curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs |
            sh -s -- -y --quiet --profile minimal --default-toolchain none
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    fi
    # Without arguments: what rust-toolchain.toml says.
    rustup toolchain install
    is_new_enough || { echo "no cargo $wanted or newer was found or could be installed" >&2; exit 1; }
fi

exec "$@"
