#!/bin/sh
# realdata.sh DIR [VERB]: unpacks the real bundles and catalogs in DIR into a temporary folder and runs a verb of olm-test
# on them. Without one, it runs them through the product's functions, installs some of the bundles on a throwaway cluster,
# mirrors catalogs, and tries the roles of some of the bundles.
set -eu
data=$1
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT INT TERM
mkdir "$unpacked/bundles" "$unpacked/fbc" "$unpacked/templates"
tar xJf "$data/bundles.tar.xz" -C "$unpacked"
tar xJf "$data/fbc.tar.xz" -C "$unpacked/fbc"
tar xJf "$data/templates.tar.xz" -C "$unpacked/templates"
[ ! -f "$data/operatorhub.json.xz" ] || xz -dc "$data/operatorhub.json.xz" >"$unpacked/operatorhub.json"
# olm_test VERB [PACKAGE...]
olm_test() {
    verb=$1
    shift
    cargo run --release --locked --quiet -p olm-test --bin olm-test -- "$verb" "$unpacked" "$@"
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
# All packages take three minutes: `make rights`.
olm_test real-rights cert-manager cloudnative-pg community-kubevirt-hyperconverged eclipse-che falco gitlab-runner-operator \
    infinispan istio keda kernel-module-management lib-bucket-provisioner loki-operator minio-operator mongodb-kubernetes \
    oadp-operator percona-server-mongodb-operator postgresql-operator security-profiles-operator strimzi-kafka-operator \
    universal-crossplane
