#!/bin/sh
# The long-output table of docs/benchmarks.md: does a drafter that doesn't pay switch itself off?
#
#     benchmarks/long_outputs.sh CHECKPOINTS AUDIO OUT [PAIRS]
#
# As asr.sh, on one recording made of all the others: joined, the first once more between, and
# spoken 1.95 times as fast, so that some 200 tokens of speech fit into one window. Needs sox.
set -eu

[ $# -ge 3 ] || { sed -n '4s/^# *//p' "$0" >&2; exit 2; }
checkpoints=$1 audio=$2 out=$3 pairs=${4:-5}
mkdir -p "$out/long"

set -- "$audio"/*.wav
sox "$@" "$1" "$@" "$out/joined.wav"
sox "$out/joined.wav" "$out/long/long.wav" tempo -s 1.95
exec "$(dirname "$0")/asr.sh" "$checkpoints" "$out/long" "$out" "$pairs"
