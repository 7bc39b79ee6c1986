"""A Whisper that has no end, no encoder, or says its prompt and its padding in an odd way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mmspec
from mmspec.errors import ModelError, OptionError
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.stable_tokens import StableTokens

from .drafting import same_ids
from .tiny import (
    DE,
    EN,
    EOS,
    NO_TIMES,
    START,
    TRANSCRIBE,
    features,
    shared,
    speech,
    tiny,
    tiny_decoder,
    tiny_processor,
)


def transcribed(model: Any, draft: Any = "ngram", **options: Any) -> mmspec.Transcription:
    with mmspec.load(model, draft, gamma=3, processor=tiny_processor()) as recogniser:
        made = recogniser.transcribe(speech(), sampling_rate=16_000, **options)
    if made.report.faults:
        raise AssertionError(made.report.faults)
    return made


def generated(model: Any, **options: Any) -> torch.Tensor:
    heard = Whisper.of(model, tiny_processor()).features(speech())
    return model.generate(heard, **options)


@pytest.mark.parametrize("draft", ["none", "ngram", "early-exit:1", "other"])
def test_no_end_is_legal(draft: str) -> None:
    model = tiny(1)
    model.generation_config.eos_token_id = None
    drafter: Any = shared(11) if draft == "other" else draft
    for asked in ({"language": "en"}, {"language": "en", "max_new_tokens": 9}):
        want = generated(model, **asked)
        made = transcribed(model, drafter, **asked)
        assert list(made.ids) == want[0].tolist()
        assert made.report.finish_reason == "length"
        batch = torch.cat([features(5), features(6)])
        same_ids(
            mmspec.generate(model, batch, drafter, gamma=3, **asked).sequences,
            model.generate(batch, **asked),
        )
    assert Whisper.of(model, tiny_processor()).word_beginnings([4, START, EN]) is not None


@pytest.mark.parametrize("rows", [1, 2])
def test_a_decoder_without_an_encoder_is_left_to_the_library(rows: int) -> None:
    model, ids = tiny_decoder(2, layers=2), torch.tensor([[5, 6, 7]] * rows)
    asked = {"max_new_tokens": 4, "do_sample": False}
    want = model.generate(ids, **asked)
    loop = mmspec.custom_generate("ngram")
    same_ids(model.generate(ids, custom_generate=loop, **asked), want)
    assert "without an encoder" in str(loop.ordinary)
    same_ids(mmspec.generate(model, {"input_ids": ids}, "ngram", **asked).sequences, want)


def test_a_decoder_without_an_encoder_only_drafts() -> None:
    with pytest.raises(ModelError, match=r"target: WhisperForCausalLM has no encoder.*only draft"):
        mmspec.load(tiny_decoder(2), processor=tiny_processor())
    plain = transcribed(shared(), "none", language="en")
    drafted = transcribed(shared(), tiny_decoder(2, layers=1), language="en")
    assert drafted.ids == plain.ids
    assert drafted.report.drafters["model"].conditioning == "shared"
    for drafter, says in (
        (tiny_decoder(2, width=24), "width 16"),
        (tiny_decoder().train(), "eval"),
    ):
        with pytest.raises(ModelError, match=f"draft: .*{says}"):
            mmspec.load(shared(), drafter, processor=tiny_processor())


@pytest.mark.parametrize("length", [5, 8, 13])
@pytest.mark.parametrize("timestamps", [False, True])
def test_what_looks_like_padding_goes_as_in_generate(length: int, timestamps: bool) -> None:
    """It counts pads anywhere, and takes away so many tokens at the end."""
    asked = {"language": "en", "max_new_tokens": length}
    of_generate = {**asked, "return_timestamps": timestamps}
    said = generated(tiny(3), **of_generate)[0].tolist()
    for pad in {said[-1], said[0]}:
        model = tiny(3, says={"pad_token_id": pad})
        want = generated(model, **of_generate)[0].tolist()
        made = transcribed(model, timestamps=timestamps, **asked)
        assert list(made.ids) == want, pad
        assert len(made.origins) == len(want)


def test_nothing_that_may_go_as_padding_is_certain_before() -> None:
    said: list[int] = []
    window = StableTokens(Whisper.of(shared()).steps, frozenset({EOS}), said.append, pad=7)
    window.add([4, 5, 7, 6])
    assert said == [4, 5]
    window.add([7])
    window.close()
    assert window.ids == [4, 5, 7]
    window.settle(3)
    assert said == [4, 5, 7]
    ended = StableTokens(Whisper.of(shared()).steps, frozenset({EOS}), said.append, pad=7)
    ended.add([4, 7, EOS])
    ended.close()
    assert ended.ids == [4, 7]


@pytest.mark.parametrize("pairs", [[[1, DE], [3, NO_TIMES]], [[1, DE], [2, TRANSCRIBE], [4, 9]]])
def test_a_gap_in_a_forced_prompt_is_refused_as_generate_refuses_it(pairs: list[Any]) -> None:
    model = tiny(1, says={"forced_decoder_ids": pairs})
    with pytest.raises(ValueError, match="has an entry for all"):
        generated(model)
    where = f"position {pairs[-1][0]} comes where {len(pairs)} is"
    with pytest.raises(OptionError, match=f"forced_decoder_ids: {where}"):
        transcribed(model)
    asked = {"language": "en", "task": "transcribe"}  # they are ignored then
    assert list(transcribed(model, **asked).ids) == generated(model, **asked)[0].tolist()
