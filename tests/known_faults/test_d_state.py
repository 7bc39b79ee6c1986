"""D: key/value state, rollback and positions."""

from __future__ import annotations

import pytest
import torch

import mmspec
from tests.modalities.drafting import drafter_options, emitted, same_ids
from tests.modalities.tiny import (
    CONTEXT,
    EOS,
    PREVIOUS,
    START,
    features,
    shared,
    tiny,
    tiny_decoder,
)

from .support import equal, said, speculated, with_three


@with_three
def test_D4_D5_every_row_of_a_batch_is_its_single_run(drafter: str) -> None:
    """Rows accept different counts; none moves another."""
    batch = torch.cat([features(seed) for seed in (5, 6, 12)])
    chosen = drafter_options(drafter, shared(), [])
    together = mmspec.generate(shared(), batch, gamma=4, language="en", **chosen).sequences
    for row in range(3):
        alone = shared().generate(batch[row : row + 1], language="en")
        same_ids(together[row : row + 1, : alone.shape[1]], alone)
        assert set(together[row, alone.shape[1] :].tolist()) <= {EOS}


@pytest.mark.parametrize("depths", [(4, 1), (1, 4), (3, 5)])
@pytest.mark.parametrize("timestamps", [False, True])
def test_D6_a_drafter_of_another_depth_has_its_own_state(
    depths: tuple[int, int], timestamps: bool
) -> None:
    target, drafter = tiny(5, layers=depths[0]), tiny(11, layers=depths[1])
    asked = {"language": "en", "return_timestamps": timestamps}
    want = target.generate(features(), **asked)
    made = mmspec.generate(target, features(), drafter, gamma=4, **asked)
    same_ids(made.sequences, want)
    assert not [fault for report in made.reports for fault in report.faults]


def test_D7_only_self_attention_is_rolled_back() -> None:
    """Watched in every round by test_whisper_state.TestConditioning; here at the state itself."""
    from mmspec.modalities.whisper.checkpoint import Whisper

    whisper = Whisper.of(shared())
    target = whisper.open(whisper.encode(features()))
    target.score([START, 51, 53, 56, 4, 9], keep=1)
    cross = target.state.cache.cross_attention_cache.layers  # type: ignore[attr-defined]
    before = [layer.keys.shape for layer in cross]
    target.state.rollback(2)
    assert [layer.keys.shape for layer in cross] == before
    assert target.state.length == 2
    target.close()


@pytest.mark.parametrize("context", [8, 12, 16])
@pytest.mark.parametrize("kind", ["model", "decoder"])
def test_D9_a_drafter_with_a_smaller_context_stops_in_time(context: int, kind: str) -> None:
    drafter = (
        tiny(1, context=context) if kind == "model" else tiny_decoder(1, context=context, layers=2)
    )
    for gamma in (3, 40):
        made = mmspec.generate(shared(), features(), drafter, gamma=gamma, language="en")
        same_ids(made.sequences, said(shared()))
        assert not made.report.faults
        assert made.report.drafter_forwards <= 2 * context


@with_three
def test_D9_blocks_shrink_at_the_targets_context(drafter: str) -> None:
    for gamma in (2, 5, 40):
        made = equal(shared(), drafter, gamma)
        assert made.report.tokens == CONTEXT - 4


@with_three
def test_D11_two_interleaved_requests_do_not_meet(drafter: str) -> None:
    """A, B, A through the same objects; then two streams read in turn."""
    chosen = drafter_options(drafter, shared(), [])
    loop = mmspec.custom_generate(gamma=4, **chosen)
    wants = {seed: shared().generate(features(seed), language="en") for seed in (5, 6)}
    for seed in (5, 6, 5):
        got = shared().generate(features(seed), custom_generate=loop, language="en")
        same_ids(got, wants[seed])


def test_D11_two_streams_read_in_turn(tmp_path: object) -> None:
    from pathlib import Path

    from tests.modalities.tiny import saved, speech

    folder = saved(Path(str(tmp_path)) / "tiny", tiny(5))
    for draft in ("ngram", "early-exit:1", str(folder)):
        with mmspec.load(folder, draft, gamma=3) as whole:
            wants = [
                whole.transcribe(speech(seed), sampling_rate=16_000, language="en").text
                for seed in (7, 8)
            ]
            streams = [
                whole.stream(speech(seed), sampling_rate=16_000, language="en") for seed in (7, 8)
            ]
            texts = ["", ""]
            alive = [0, 1]
            while alive:
                for which in list(alive):
                    piece = next(streams[which], None)
                    if piece is None:
                        alive.remove(which)
                    else:
                        texts[which] += piece
            assert [text.strip() for text in texts] == wants


@with_three
def test_D12_positions_of_a_block_are_those_of_a_full_forward(drafter: str) -> None:
    """Teacher forcing over the whole output gives the same tokens."""
    made = speculated(shared(), drafter, 4, suppress_tokens=None, begin_suppress_tokens=None)
    ids = emitted(made.sequences)[: CONTEXT - 4]
    prompt = [START, 51, 53, 56]
    with torch.no_grad():
        rows = shared()(
            features(), decoder_input_ids=torch.tensor([[*prompt, *ids]]), use_cache=False
        ).logits[0]
    rows[:, [1, 2]] = -torch.inf
    rows[3, [3, EOS]] = -torch.inf
    assert rows[3:-1].argmax(-1).tolist() == ids


@with_three
@pytest.mark.parametrize("rows", [1, 2])
def test_D13_a_padded_prompt_is_masked(drafter: str, rows: int) -> None:
    prompts = [[EOS, EOS, START, 51, 53, 56], [PREVIOUS, 4, START, 51, 53, 56]][:rows]
    ids = torch.tensor(prompts)
    asked = {
        "decoder_input_ids": ids,
        "decoder_attention_mask": (ids != EOS).long(),
        "max_new_tokens": 7,
    }
    batch = features(rows=rows)
    loop = mmspec.custom_generate(gamma=4, **drafter_options(drafter, shared(), []))
    same_ids(
        shared().generate(batch, custom_generate=loop, **asked), shared().generate(batch, **asked)
    )


@with_three
def test_D14_what_the_processor_adds_is_accepted(drafter: str) -> None:
    mask = torch.ones(1, features().shape[-1], dtype=torch.long)
    equal(shared(), drafter, 4, attention_mask=mask)
