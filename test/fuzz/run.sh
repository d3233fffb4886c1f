#!/bin/sh
# Looks for inputs that break a reader: run.sh [SECONDS] [TARGET…]. Works with the stable toolchain: coverage comes from a
# compiler pass, the engine from libfuzzer-sys. What is found lies in target/fuzz/TARGET; a fixed one becomes a seed. Real
# catalogs, templates and bundles below SHARED/realdata are a further corpus where they are.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- $(ls seeds)
root=$(cd ../.. && pwd)
out=$root/target/fuzz
# Only our own crates are instrumented: what they depend on is compiled already, and its coverage is not ours. The whole
# workspace is named so that it is compiled with the same features.
(cd "$root" && RUSTC_WORKSPACE_WRAPPER=$PWD/test/fuzz/instrument \
    cargo build --release --locked --workspace --features olm-test/fuzz --bin olm-fuzz)
program=${CARGO_TARGET_DIR:-$root/target}/release/olm-fuzz
data=${SHARED:-../shared}
case $data in /*) ;; *) data=../../$data ;; esac
data=$data/realdata
real=$out/real
if [ -d "$data" ] && [ ! -d "$real" ]; then
    unpacked=$(mktemp -d)
    mkdir -p "$real"
    for kind in fbc templates bundles; do
        mkdir "$unpacked/$kind" "$real/$kind"
        tar xJf "$data/$kind.tar.xz" -C "$unpacked/$kind"
    done
    # Small ones, or the engine spends its time on copying.
    for kind in fbc templates; do
        find "$unpacked/$kind" -type f -size -32k | sort | head -n 300 | while read -r file; do
            cp "$file" "$real/$kind/$(echo "$file" | cksum | tr -d ' ')"
        done
    done
    find "$unpacked/bundles" -type d -name manifests | sort | while read -r manifests; do
        bundle=$(dirname "$manifests")
        whole=$real/bundles/$(echo "$bundle" | cksum | tr -d ' ')
        (cd "$bundle" && find manifests metadata -type f 2>/dev/null | sort | while read -r file; do
            echo "--- FILE $file"
            cat "$file"
        done) >"$whole"
        [ "$(wc -c <"$whole")" -lt 65536 ] || rm "$whole"
    done
    rm -rf "$unpacked"
fi
failed=
for target in "$@"; do
    mkdir -p "$out/$target/corpus"
    echo "== $target"
    case $target in
    yaml | blobs | catalog) more=$real/fbc ;;
    template) more=$real/templates ;;
    bundle | validators) more=$real/bundles ;;
    *) more= ;;
    esac
    [ -d "$more" ] || more=
    OLM_FUZZ_TARGET=$target "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -max_len=65536 -print_final_stats=1 -artifact_prefix="$out/$target/" "$out/$target/corpus" "seeds/$target" $more \
        >"$out/$target/log" 2>&1 || failed="$failed $target"
    grep -E 'stat::number_of_executed_units|cov:.*pulse|SUMMARY' "$out/$target/log" | tail -n 3
    grep -oE 'cov: [0-9]+' "$out/$target/log" | tail -n 1
done
[ -z "$failed" ] || { echo "found something in:$failed (see $out)"; exit 1; }
