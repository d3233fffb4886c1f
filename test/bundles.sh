#!/bin/sh
# rights.sh DIR: unpacks the real bundles in DIR into a temporary folder and checks the roles that `olm rbac` prints for each.
set -eu
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT INT TERM
tar xJf "$1/bundles.tar.xz" -C "$unpacked"
cargo run --release --locked --quiet -p olm-test --bin olm-test -- real-rights "$unpacked"
