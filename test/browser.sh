#!/usr/bin/env bash
# browser.sh OLM test|screenshots [OUT]: serves catalogs with the program OLM and looks at the pages with Debian's Chromium, driven
# by Playwright, which is installed into the user's cache. Needs node, npm and chromium.
# browser.sh OLM ui COMMAND...: runs a command, a test that starts `olm ui`, so that it looks at those pages too.
set -euo pipefail
olm=$(realpath "${1:-target/release/olm}")
what=${2:-test}
started=$PWD
[ "$what" = ui ] || export OUT=$(realpath --canonicalize-missing "${3:-dist/screenshots}")
cd "$(dirname "$0")/browser"
for program in node npm "${CHROMIUM:-chromium}"; do
    command -v "$program" >/dev/null || { echo "browser.sh: $program is missing: apt-get install nodejs npm chromium" >&2; exit 2; }
done

# An installation for each set of versions, complete or not there.
versions=$(cat package.json package-lock.json | sha256sum | cut -c 1-12)
home=${XDG_CACHE_HOME:-$HOME/.cache}/olm-ci/browser-$versions
if [ ! -f "$home/complete" ]; then
    mkdir -p "$(dirname "$home")"
    exec 9>"$home.lock"
    flock 9
    if [ ! -f "$home/complete" ]; then
        rm -rf "$home"
        mkdir "$home"
        cp package.json package-lock.json "$home"
        npm --prefix "$home" ci --silent --no-audit --no-fund
        touch "$home/complete"
    fi
    exec 9>&-
fi
export MODULES=$home
if [ "$what" = ui ]; then
    export OLM_BROWSER_UI=$PWD/ui.test.mjs
    cd "$started"
    exec "${@:3}"
fi

catalogs=(showcase manifests)
[ "$what" = screenshots ] || catalogs+=(hostile)
work=$(mktemp -d)
node catalogs.mjs "$work/catalogs"
touch "$work/addresses" "$work/errors"
(cd "$work/catalogs" && exec "$olm" catalog serve --addr 127.0.0.1:0 "${catalogs[@]}" >"$work/addresses" 2>"$work/errors") &
server=$!
trap 'kill $server 2>/dev/null || true; wait; rm -rf "$work"' EXIT
trap 'exit 143' TERM INT
ADDRESS=
for _ in $(seq 300); do
    ADDRESS=$(sed -n 's|^to browse: \(http://.*\)/$|\1|p' "$work/addresses")
    [ -z "$ADDRESS" ] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
[ -n "$ADDRESS" ] || { cat "$work/errors"; exit 1; }
export ADDRESS

case $what in
test) timeout --kill-after=10 900 node --test --test-reporter=spec journeys.test.mjs ;;
screenshots) node screenshots.mjs ;;
*) echo "browser.sh: test, screenshots or ui, not $what" >&2; exit 2 ;;
esac
kill -0 "$server" || { echo "the server is gone"; cat "$work/errors"; exit 1; }
