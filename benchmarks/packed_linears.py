"""What a block costs by its number of rows: default layers, and packed ones with several hints.

    python benchmarks/packed_linears.py CHECKPOINT [--threads 1] [--rounds 15]

Prints a decoder forward (behind 30 cached positions) in steps of the default one-row forward, and
the vocabulary projection alone. Measurements are interleaved, figures are medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mmspec.kernels import PackedLinears, packed
from mmspec.loading import load_whisper
from mmspec.modalities.base.decoder import DecoderTarget, block_layers
from mmspec.modalities.whisper.checkpoint import Whisper

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
HINTS = (1, 6, 16)
CACHED = 30


@contextmanager
def layout(whisper: Whisper, hint: int | None) -> Iterator[None]:
    """The decoder's linear layers packed for `hint` rows; None: as they are."""
    if hint is None:
        yield
        return
    before = packed.ROWS_HINT
    packed.ROWS_HINT = hint
    model = whisper.model
    try:
        with PackedLinears(block_layers(model.get_decoder(), model.get_output_embeddings())):
            yield
    finally:
        packed.ROWS_HINT = before


def opened(whisper: Whisper) -> DecoderTarget:
    """A decoder with some positions read, its layers as they are just now."""
    config = whisper.model.config
    states = torch.zeros(1, config.max_source_positions, config.d_model)
    target = Whisper(whisper.model, whisper.processor, whisper.steps, packed=False).open(states)
    target.score([1] * CACHED, keep=1)
    return target


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def forward_ms(target: DecoderTarget, rows: int) -> float:
    """One block, scored and taken back."""
    mark = target.state.mark()
    spent = milliseconds(lambda: target.score([2] * rows, keep=rows))
    target.state.restore(mark)
    return spent


def measure(whisper: Whisper, rounds: int) -> dict[str, dict[int | None, dict[int, float]]]:
    """Medians in milliseconds: by subject, by hint, by rows."""
    layouts = (None, *HINTS)
    seen: dict[str, dict[int | None, dict[int, list[float]]]] = {
        subject: {hint: {rows: [] for rows in ROWS} for hint in layouts}
        for subject in ("decoder", "vocabulary projection")
    }
    head = whisper.model.get_output_embeddings()
    hidden = {rows: torch.randn(1, rows, head.in_features) for rows in ROWS}
    for number in range(rounds + 2):  # two to warm up
        for hint in layouts:
            with layout(whisper, hint), torch.no_grad():
                target = opened(whisper)
                for rows in ROWS:
                    x = hidden[rows]
                    spent = forward_ms(target, rows), milliseconds(lambda x=x: head(x))
                    if number >= 2:
                        for subject, value in zip(seen, spent, strict=True):
                            seen[subject][hint][rows].append(value)
                target.close()
    return {
        subject: {
            hint: {rows: statistics.median(values) for rows, values in by_rows.items()}
            for hint, by_rows in by_hint.items()
        }
        for subject, by_hint in seen.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    whisper = load_whisper(str(options.checkpoint), "cpu", torch.float32, packed=False)
    for subject, by_hint in measure(whisper, options.rounds).items():
        token = by_hint[None][1]
        print(f"\n{subject}, in default one-row steps ({token:.1f} ms here)\n")
        print("| layout | " + " | ".join(str(rows) for rows in ROWS) + " |")
        print("|---" * (len(ROWS) + 1) + "|")
        for hint, by_rows in by_hint.items():
            name = "default" if hint is None else f"packed, hint {hint}"
            print(f"| {name} | " + " | ".join(f"{by_rows[r] / token:.2f}" for r in ROWS) + " |")


if __name__ == "__main__":
    main()
