#!/bin/sh
# Looks for inputs that break a reader: run.sh [SECONDS] [TARGET…]. Works with the stable toolchain: coverage comes from a
# compiler pass, the engine from libfuzzer-sys. What is found lies in target/fuzz/TARGET; a fixed one becomes a seed.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- $(ls seeds)
passes='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares'
out=$(cd ../.. && pwd)/target/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
# Naming the machine keeps the passes away from build scripts and macros.
RUSTFLAGS=$(echo $passes) cargo build --release --target "$host" --target-dir "$out/build"
failed=
for target in "$@"; do
    mkdir -p "$out/$target/corpus"
    echo "== $target"
    OLM_FUZZ_TARGET=$target "$out/build/$host/release/olm-fuzz" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -max_len=65536 -print_final_stats=1 -artifact_prefix="$out/$target/" "$out/$target/corpus" "seeds/$target" \
        >"$out/$target/log" 2>&1 || failed="$failed $target"
    grep -E 'stat::number_of_executed_units|cov:.*pulse|SUMMARY' "$out/$target/log" | tail -n 3
    grep -oE 'cov: [0-9]+' "$out/$target/log" | tail -n 1
done
[ -z "$failed" ] || { echo "found something in:$failed (see $out)"; exit 1; }
