#!/bin/sh
# realdata.sh DIR: unpacks the real bundles and catalogs in DIR into a temporary folder, runs them, and installs some of
# the bundles on a throwaway cluster.
set -eu
data=$1
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT INT TERM
mkdir "$unpacked/bundles" "$unpacked/fbc" "$unpacked/templates"
tar xJf "$data/bundles.tar.xz" -C "$unpacked"
tar xJf "$data/fbc.tar.xz" -C "$unpacked/fbc"
tar xJf "$data/templates.tar.xz" -C "$unpacked/templates"
[ ! -f "$data/operatorhub.json.xz" ] || xz -dc "$data/operatorhub.json.xz" >"$unpacked/operatorhub.json"
cargo run --release --locked --quiet -p olm-test --bin realdata -- "$unpacked"
# The whole workspace, so that nothing is compiled with other features.
cargo build --release --locked --quiet --workspace --bins
cargo run --release --locked --quiet -p olm-test --bin olm-test -- real-bundles "$unpacked"
