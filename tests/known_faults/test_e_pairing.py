"""E: vocabularies, tokenizers and devices of a pair. With real processors: tests/test_api.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mmspec
from mmspec.proposals import SameVocabulary, VocabularyBridge
from tests.modalities.drafting import same_ids
from tests.modalities.tiny import TEXT_PIECES, features, saved, speech, tiny, tiny_processor


@pytest.mark.parametrize("sizes", [(108, 112), (112, 108), (108, 128)])
@pytest.mark.parametrize("timestamps", [False, True])
def test_E1_E2_vocabularies_that_differ_by_padding(
    sizes: tuple[int, int], timestamps: bool
) -> None:
    target, drafter = tiny(5, vocab=sizes[0]), tiny(11, vocab=sizes[1])
    asked = {"language": "en", "return_timestamps": timestamps}
    want = target.generate(features(), **asked)
    made = mmspec.generate(target, features(), drafter, gamma=4, **asked)
    same_ids(made.sequences, want)
    for report in made.reports:
        assert not report.faults
        assert report.proposed > 0


@pytest.mark.parametrize("seed", [None, 3])
def test_E1_E2_padded_vocabularies_when_sampling(seed: int | None) -> None:
    target, drafter = tiny(5, vocab=112), tiny(11, vocab=108)
    made = mmspec.generate(
        target, features(), drafter, gamma=4, language="en", temperature=1.0, seed=seed
    )
    for report in made.reports:
        assert not report.faults


def test_E1_E2_padding_is_never_drafted_or_read() -> None:
    row = SameVocabulary(5, 3).to_target(torch.zeros(3))
    assert row.tolist() == [0, 0, 0, -torch.inf, -torch.inf]
    assert SameVocabulary(5, 3).to_draft(4) == ()
    assert SameVocabulary(3, 5).to_target(torch.zeros(5)).shape == (3,)
    assert SameVocabulary(3, 5).to_draft(2) == (2,)


@pytest.mark.parametrize("timestamps", [False, True])
def test_E3_another_tokenizer_is_bridged(timestamps: bool, tmp_path: Any) -> None:
    """Other ids, other merges: no position or begin mark of the target reaches the drafter."""
    letters = ("Ġ", *TEXT_PIECES[:26][::-1], *(f"Ġ{letter}" for letter in "zyxwvutsrqponmlkjihgfe"))
    assert len(letters) == len(TEXT_PIECES)
    target = saved(tmp_path / "target", tiny(5))
    drafter = saved(tmp_path / "drafter", tiny(11), tiny_processor(pieces=letters))
    asked: dict[str, Any] = {
        "sampling_rate": 16_000,
        "language": "en",
        "timestamps": timestamps,
        "prompt": "the bad end",
    }
    with mmspec.load(target) as whole:
        want = whole.transcribe(speech(), **asked).ids
    for gamma in (1, 4, "adaptive"):
        with mmspec.load(target, str(drafter), gamma=gamma) as whole:
            heard = whole.transcribe(speech(), **asked)
        assert heard.ids == want
        assert not heard.report.faults
        assert gamma == "adaptive" or heard.report.proposed > 0


def test_E3_what_has_no_twin_is_spelled_or_left_out() -> None:
    bridge = VocabularyBridge({"a": 0, "ab": 1, "<|x|>": 2, "é": 3}, {"b": 0, "a": 1}, 4, 2)
    assert bridge.to_draft(1) == (1, 0)
    assert bridge.to_draft(2) == ()
    assert bridge.to_draft(3) == ()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device to go to")
def test_E4_a_device_that_is_not_there_is_named(tmp_path: Any) -> None:
    folder = saved(tmp_path / "tiny", tiny(5))
    with pytest.raises(mmspec.MMSpecError, match="tiny: can't be loaded") as error:
        mmspec.load(folder, device="cuda")
    assert "\n" not in str(error.value)
