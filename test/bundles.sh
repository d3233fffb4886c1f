#!/bin/sh
# bundles.sh DIR VERB: unpacks the real bundles in DIR into a temporary folder and runs a verb of olm-test on them.
set -eu
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT INT TERM
tar xJf "$1/bundles.tar.xz" -C "$unpacked"
cargo run --release --locked --quiet -p olm-test --bin olm-test -- "$2" "$unpacked"
