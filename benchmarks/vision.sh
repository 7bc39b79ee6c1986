#!/bin/sh
# The table of images in docs/benchmarks.md: the vision sample with every drafter, against ordinary
# decoding and against transformers, one thread, float32.
#
#     benchmarks/vision.sh OUT [PAIRS]
#
# Once with Tesseract reading as part of the run, once with its readings at hand
# (samples/images/readings.tsv). OUT gets the result file with every single time, and the tables.
set -eu

[ $# -ge 1 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd) pairs=${2:-5} images=samples/images
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1

mmspec bench vlm "$images" --target sample --reference "$images/truth.tsv" \
    --draft none --draft ngram --draft sample --draft hypothesis \
    --draft "hypothesis:$images/readings.tsv" --grounding 1 \
    --pairs "$pairs" --threads 1 --json "$out/vision.json" --markdown "$out/vision.md"
