#!/bin/sh
# realdata.sh DIR [VERB]: unpacks the real bundles and catalogs in DIR into a temporary folder and runs a verb of olm-test
# on them. Without one, it runs them through the product's functions, installs some of the bundles on a throwaway cluster,
# and mirrors catalogs.
set -eu
data=$1
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT INT TERM
mkdir "$unpacked/bundles" "$unpacked/fbc" "$unpacked/templates"
tar xJf "$data/bundles.tar.xz" -C "$unpacked"
tar xJf "$data/fbc.tar.xz" -C "$unpacked/fbc"
tar xJf "$data/templates.tar.xz" -C "$unpacked/templates"
[ ! -f "$data/operatorhub.json.xz" ] || xz -dc "$data/operatorhub.json.xz" >"$unpacked/operatorhub.json"
olm_test() {
    cargo run --release --locked --quiet -p olm-test --bin olm-test -- "$1" "$unpacked"
}
if [ $# -gt 1 ]; then
    olm_test "$2"
    exit
fi
cargo run --release --locked --quiet -p olm-test --bin realdata -- "$unpacked"
# The whole workspace, so that nothing is compiled with other features.
cargo build --release --locked --quiet --workspace --bins
olm_test real-bundles
olm_test real-mirrors
