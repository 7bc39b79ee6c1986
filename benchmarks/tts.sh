#!/bin/sh
# The speech tables of docs/benchmarks.md: the voice sample with every drafter, against ordinary
# decoding and against transformers, one thread, float32.
#
#     benchmarks/tts.sh OUT [PAIRS]
#
# OUT gets the result files with every single time, and the tables.
set -eu

[ $# -ge 1 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
out=$1 pairs=${2:-5}
mkdir -p "$out"
export OMP_NUM_THREADS=1

mmspec bench tts --draft none --draft sample --draft heads:sample --draft lookup \
    --draft lookup+sample --pairs "$pairs" --threads 1 \
    --json "$out/tts.json" --markdown "$out/tts.md"
mmspec bench tts --draft sample --gamma 3 --pairs "$pairs" --threads 1 \
    --json "$out/tts-fixed.json" --markdown "$out/tts-fixed.md"
python "$(dirname "$0")/said_again.py" --pairs "$pairs" --json "$out/said-again.json"
