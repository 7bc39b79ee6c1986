"""Several Whisper windows side by side: ragged, each with its own state, none aware of others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import mmspec
from mmspec.clock import Clock
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.fast_decoder import FastWhisperTarget
from mmspec.modalities.whisper.window import Encoding
from mmspec.target import Pass
from tests.modalities.tiny import EN, NO_TIMES, START, TRANSCRIBE, features, shared, tiny

PROMPT = [START, EN, TRANSCRIBE, NO_TIMES]
CPU = torch.device("cpu")

BLOCKS: list[tuple[list[int], int, list[int] | None]] = [
    ([5, 9, 30], 3, None),
    ([7], 1, None),
    ([4, 9, 9, 44, 3, 2], 2, [-1, 0, 0, 2, -1, 4]),
    ([12, 13], 0, None),
]
"""(tokens, rows wanted, shape) of one target each."""

READ = (0, 3, 5, 1)
"""Tokens that each target has read behind its prompt."""


def opened(model: Any, packed: bool) -> list[DecoderTarget]:
    whisper = Whisper.of(model, packed=packed)
    targets = []
    for seed, read in enumerate(READ):
        target = whisper.open(whisper.encode(features(seed)))
        target.score([*PROMPT, *range(20, 20 + read)], keep=1)
        targets.append(target)
    return targets


def passes(targets: list[DecoderTarget]) -> list[Pass]:
    return [
        Pass(target, ids, keep, parents, Clock(CPU), "verify")
        for target, (ids, keep, parents) in zip(targets, BLOCKS, strict=True)
    ]


@pytest.mark.parametrize(
    ("attention", "packed"), [("sdpa", True), ("sdpa", False), ("eager", False)]
)
def test_D4_rows_are_those_of_each_block_alone(attention: str, packed: bool) -> None:
    model = tiny(1, attention=attention)
    alone, together = opened(model, packed), opened(model, packed)
    for target in together:
        target.state.poison_unused()
    want = [one.run() for one in passes(alone)]
    asked = passes(together)
    got = asked[0].run_batched(asked)
    for ours, theirs, mine, yours in zip(got, want, together, alone, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert mine.state.length == yours.state.length
        assert mine.forwards == yours.forwards
    for target in (*alone, *together):
        target.close()


def test_rows_of_one_decoder_take_one_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(1)
    targets = opened(model, packed=True)
    assert all(type(target) is FastWhisperTarget for target in targets)
    seen: list[int] = []
    layer = model.get_decoder().layers[0].fc1
    real = layer.forward

    def counted(rows: Tensor) -> Tensor:
        seen.append(rows.shape[1])
        return real(rows)

    monkeypatch.setattr(layer, "forward", counted)
    asked = passes(targets)
    asked[0].run_batched(asked)
    assert seen == [sum(len(ids) for ids, _, _ in BLOCKS)], "one row of tokens, nothing padded"
    for target in targets:
        target.close()


def test_targets_of_two_decoders_do_not_mix() -> None:
    one, other = opened(tiny(1), True), opened(tiny(2), True)
    mixed = passes([one[0], other[1], one[2], other[3]])
    got = mixed[0].run_batched(mixed)
    again_one, again_other = opened(tiny(1), True), opened(tiny(2), True)
    apart = passes([again_one[0], again_other[1], again_one[2], again_other[3]])
    for ours, single in zip(got, apart, strict=True):
        torch.testing.assert_close(ours, single.run(), rtol=1e-4, atol=1e-4)
    for target in (*one, *other, *again_one, *again_other):
        target.close()


def test_windows_are_encoded_together() -> None:
    whisper = Whisper.of(shared())
    works = [Encoding(whisper, features(seed), Clock(CPU)) for seed in range(3)]
    together = works[0].run_batched(works)
    for work, states in zip(works, together, strict=True):
        torch.testing.assert_close(states, work.run(), rtol=1e-4, atol=1e-5)


def test_a_batch_takes_as_many_forwards_as_its_longest_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finished rows stand still while others go on."""
    import mmspec.modalities.whisper.fast_decoder as lean

    sizes: list[int] = []
    real = lean._forward

    def counted(blocks: Any) -> Any:
        sizes.append(len(blocks))
        return real(blocks)

    # A model of its own: transformers leaves hooks on one that was ever asked for attentions.
    model, batch = tiny(1), torch.cat([features(seed) for seed in (5, 6, 12)])
    expected = model.generate(batch, language="en")[1].tolist()  # one row has a good draft
    monkeypatch.setattr(lean, "_forward", counted)
    made = mmspec.generate(model, batch, "hypothesis", hypothesis=expected, gamma=6, language="en")
    forwards = [report.target_forwards for report in made.reports]
    assert len(set(forwards)) > 1, "rows of unequal pace, or this shows nothing"
    assert len(sizes) == max(forwards)
    assert sum(sizes) == sum(forwards)


@pytest.mark.parametrize("drafter", ["ngram", "early-exit:1", "hypothesis"])
@pytest.mark.parametrize("timestamps", [False, True])
def test_D5_rows_with_unequal_drafts_are_their_single_runs(drafter: str, timestamps: bool) -> None:
    model = shared(5)
    batch = torch.cat([features(seed) for seed in (5, 6, 12, 5)])
    asked: dict[str, Any] = {"language": "en", "return_timestamps": timestamps}
    want = model.generate(batch, **asked)
    more = {"hypothesis": want[1].tolist()} if drafter == "hypothesis" else {}
    made = mmspec.generate(model, batch, drafter, gamma=4, **more, **asked)
    assert made.sequences.tolist() == want.tolist()
    assert not [fault for report in made.reports for fault in report.faults]


def test_a_drafter_of_its_own_counts_its_encoder_runs_row_by_row() -> None:
    batch = torch.cat([features(seed) for seed in (5, 6, 12)])
    made = mmspec.generate(shared(), batch, shared(11), gamma=3, language="en")
    assert [report.drafter_encoder_runs for report in made.reports] == [1, 1, 1]
    assert made.sequences.tolist() == shared().generate(batch, language="en").tolist()
