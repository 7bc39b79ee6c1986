#!/bin/sh
# The table of docs/benchmarks.md: whisper-base with every drafter, against ordinary decoding and
# against transformers, one thread, float32.
#
#     benchmarks/asr.sh CHECKPOINTS AUDIO OUT [PAIRS [REFERENCE]]
#
# CHECKPOINTS holds whisper-base and whisper-tiny.en, AUDIO the recordings (*.wav). REFERENCE, or
# transcripts.tsv beside them (columns file and text), gives the word error rate. OUT gets the
# hypotheses, the result file with every single time, and the tables.
set -eu

[ $# -ge 3 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
checkpoints=$1 audio=$2 out=$3 pairs=${4:-5} reference=${5:-}
mkdir -p "$out"
export OMP_NUM_THREADS=1

mmspec transcribe "$audio"/*.wav --target "$checkpoints/whisper-tiny.en" --threads 1 --quiet \
    > "$out/tiny.en.txt"
mmspec bench asr "$audio"/*.wav --target "$checkpoints/whisper-base" --language en \
    --draft none --draft ngram --draft early-exit:3 --draft "$checkpoints/whisper-tiny.en" \
    --draft "hypothesis:$out/tiny.en.txt" \
    --pairs "$pairs" ${reference:+--reference "$reference"} --threads 1 \
    --json "$out/asr.json" --markdown "$out/asr.md"
