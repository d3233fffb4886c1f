#!/usr/bin/env bash
# schemathesis.sh [OLM]: serves a small catalog with the program OLM and holds the server against its own description with
# Schemathesis, which is installed into the user's cache. The same requests every time.
set -euo pipefail
olm=$(realpath "${1:-target/release/olm}")
cd "$(dirname "$0")/schemathesis"

# An installation for each set of versions, complete or not there.
versions=$(sha256sum requirements.txt | cut -c 1-12)
home=${XDG_CACHE_HOME:-$HOME/.cache}/olm-ci/schemathesis-$versions
if [ ! -f "$home/complete" ]; then
    mkdir -p "$(dirname "$home")"
    exec 9>"$home.lock"
    flock 9
    if [ ! -f "$home/complete" ]; then
        rm -rf "$home"
        python3 -m venv "$home"
        "$home/bin/pip" install --quiet --disable-pip-version-check --requirement requirements.txt
        touch "$home/complete"
    fi
    exec 9>&-
fi

work=$(mktemp -d)
touch "$work/addresses" "$work/errors"
"$olm" catalog serve --addr 127.0.0.1:0 kitchen=catalog >"$work/addresses" 2>"$work/errors" &
server=$!
checks=
trap 'kill $server $checks 2>/dev/null || true; wait; rm -rf "$work"' EXIT
trap 'exit 143' TERM INT
address=
for _ in $(seq 300); do
    address=$(sed -n 's|^to browse: \(http://.*\)/$|\1|p' "$work/addresses")
    [ -z "$address" ] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
[ -n "$address" ] || { cat "$work/errors"; exit 1; }

cp schemathesis.toml "$work"
cd "$work"
timeout --kill-after=10 900 "$home/bin/schemathesis" --config-file schemathesis.toml run "$address/openapi.json" \
    --seed 1 --max-examples 15 --workers 1 --request-timeout 60 --suppress-health-check all --generation-database none &
checks=$!
wait "$checks"
checks=
kill -0 "$server" || { echo "the server is gone"; cat errors; exit 1; }
