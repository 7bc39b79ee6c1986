"""G: speech recognition with Whisper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperConfig

import mmspec
from mmspec.modalities.media.audio import load_audio
from mmspec.proposals import ModelDrafter
from tests.modalities.drafting import same_ids
from tests.modalities.tiny import (
    EOS,
    PREVIOUS,
    features,
    saved,
    shared,
    speech,
    tiny,
    tiny_decoder,
    tiny_processor,
)
from tests.test_generation import one_line

from .support import equal, said, with_three


def test_G2_a_drafter_that_cannot_pay_is_switched_off() -> None:
    """Five times the target's depth and nearly always wrong: target passes stay those of plain."""
    drafter = tiny(12, layers=15)
    made = mmspec.generate(shared(), features(), drafter, gamma="adaptive", language="en")
    same_ids(made.sequences, said(shared()))
    assert made.report.proposed <= 3


@pytest.mark.parametrize("timestamps", [False, True])
def test_G3_a_drafter_without_encoder_listens_through_the_target(timestamps: bool) -> None:
    drafter = tiny_decoder(2, layers=1)
    asked = {"language": "en", "return_timestamps": timestamps}
    want = shared(5).generate(features(), **asked)
    made = mmspec.generate(shared(5), features(), drafter, gamma=4, **asked)
    same_ids(made.sequences, want)
    for report in made.reports:
        assert not report.faults
        assert report.proposed > 0
        assert report.drafter_encoder_runs == 0
        assert report.drafters["model"].conditioning == "shared"


def test_G3_the_attribute_map_trap() -> None:
    """`num_hidden_layers` of a Whisper config is the encoder's: the decoder's keeps its own."""
    trapped = WhisperConfig(num_hidden_layers=1, decoder_layers=3)
    assert trapped.encoder_layers == 1
    assert trapped.decoder_layers == 3
    drafter = tiny_decoder(2, layers=2)
    made = mmspec.generate(shared(), features(), drafter, gamma=4, language="en")
    same_ids(made.sequences, said(shared()))
    assert not made.report.faults


def test_G3_another_width_is_refused() -> None:
    with pytest.raises(mmspec.MMSpecError, match="width 16, this one has 32") as error:
        mmspec.generate(shared(), features(), tiny_decoder(2, width=32), language="en")
    one_line(error.value)


def test_G4_given_features_that_the_drafter_cannot_hear_are_refused() -> None:
    with pytest.raises(mmspec.MMSpecError, match=r"takes 12 mel bins .* have 8 x 100") as error:
        mmspec.generate(shared(), features(), tiny(2, bins=12), gamma=3, language="en")
    one_line(error.value)


def test_G4_from_audio_each_model_makes_its_own_features(tmp_path: Path) -> None:
    target = saved(tmp_path / "target", tiny(5))
    drafter = saved(tmp_path / "drafter", tiny(5, bins=12), tiny_processor(bins=12))
    with mmspec.load(target) as whole:
        want = whole.transcribe(speech(), sampling_rate=16_000, language="en").ids
    with mmspec.load(target, str(drafter), gamma=3) as whole:
        heard = whole.transcribe(speech(), sampling_rate=16_000, language="en")
    assert heard.ids == want
    assert not heard.report.faults
    assert heard.report.drafter_encoder_runs == heard.report.encoder_runs


def test_G4_a_processor_of_another_size_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "mixed", tiny(5), tiny_processor(bins=12))
    with mmspec.load(folder) as whole:
        with pytest.raises(mmspec.MMSpecError, match="12 mel bins, the model takes 8") as error:
            whole.transcribe(speech(), sampling_rate=16_000, language="en")
        one_line(error.value)


@with_three
@pytest.mark.parametrize("left", [1, 2, 3, 5])
def test_G6_the_context_ends_inside_a_block(drafter: str, left: int) -> None:
    model = shared()
    words = torch.tensor([PREVIOUS, *(4 + i % 9 for i in range(32 - 5 - left))])
    made = equal(model, drafter, 6, prompt_ids=words)
    assert made.report.tokens <= left
    assert made.report.finish_reason == "length"


def test_G6_a_prompt_beyond_the_context_is_an_error_before_the_start(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny", tiny(5))
    with mmspec.load(folder, "ngram") as whole:
        with pytest.raises(mmspec.MMSpecError, match="of the decoder's 32 positions") as error:
            whole.transcribe(speech(), sampling_rate=16_000, language="en", prompt="z " * 30)
        one_line(error.value)


@with_three
def test_G8_thresholds_that_all_fail_return_the_last_try(drafter: str) -> None:
    asked: dict[str, Any] = {"temperature": 0.0, "compression_ratio_threshold": 0.1}
    equal(shared(), drafter, 4, **asked)


def test_G9_an_empty_transcript_is_one(tmp_path: Path) -> None:
    """The first token may be the end; nothing is put in its place."""
    model = tiny(5, says={"begin_suppress_tokens": None})
    with torch.no_grad():  # the end mark wins at once
        model.get_output_embeddings().weight[EOS] = 5
        model.get_decoder().layer_norm.weight.zero_()
        model.get_decoder().layer_norm.bias.fill_(1)
    folder = saved(tmp_path / "silent", model)
    for draft in ("none", "ngram", "early-exit:1"):
        with mmspec.load(folder, draft, gamma=3) as whole:
            heard = whole.transcribe(speech(), sampling_rate=16_000, language="en")
        assert heard.text == ""
        assert heard.ids == ()
        assert heard.report.tokens == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_G10_one_sample_that_is_no_number_is_rejected(bad: float) -> None:
    samples = speech().copy()
    samples[8000] = bad
    with pytest.raises(
        mmspec.MMSpecError, match=r"1 NaN or infinite sample, .* index 8000"
    ) as error:
        load_audio(samples, 16_000)
    one_line(error.value)


def test_G12_a_rate_is_required_and_honoured() -> None:
    with pytest.raises(mmspec.MMSpecError, match="no sampling rate"):
        load_audio(speech())
    assert len(load_audio(np.sin(np.arange(44_100) / 9), 44_100)) == 16_000


@pytest.mark.parametrize("offset", [-161, -160, -1, 0, 1, 159, 160])
def test_G13_one_function_computes_the_frames(offset: int, tmp_path_factory: Any) -> None:
    """Sample counts around a frame's edge all fill exactly one window."""
    from mmspec.modalities.whisper.checkpoint import Whisper

    whisper = Whisper.of(shared(), tiny_processor())
    samples = speech(seconds=0.5)[: 8000 + offset]
    assert whisper.features(samples).shape == (1, 8, whisper.window_frames)


def test_G14_a_family_that_is_not_supported_is_refused_by_name() -> None:
    from mmspec.modalities import adapter_for

    with pytest.raises(mmspec.MMSpecError, match="no adapter for model type 't5'"):
        adapter_for("t5")


class Moods:
    """Ways in which a drafting model breaks in the middle of a run."""

    def __init__(self, kind: str, after: int) -> None:
        self.kind, self.left = kind, after

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left >= 0:
            return rows
        if self.kind == "raises":
            raise RuntimeError("the drafter\nbroke")
        if self.kind == "nan":
            return torch.full_like(rows, torch.nan)
        if self.kind == "narrow":
            return rows[..., :40]
        return rows[..., :0]


@pytest.mark.parametrize("kind", ["raises", "nan", "narrow", "empty"])
@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("temperature", [None, 1.0])
def test_G_a_drafter_that_breaks_mid_run_changes_nothing(
    kind: str, after: int, temperature: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"language": "en", "seed": 3, "max_new_tokens": 20}
    if temperature is not None:
        asked["temperature"] = temperature
    want = mmspec.generate(shared(), features(), gamma=0, **asked).sequences
    whole, mood = ModelDrafter._score, Moods(kind, after)
    monkeypatch.setattr(ModelDrafter, "_score", lambda self, ids: mood(whole(self, ids)))
    made = mmspec.generate(shared(), features(), shared(11), gamma=4, **asked)
    same_ids(made.sequences, want)
    if kind != "narrow":  # a narrower row is padded or refused, as it comes
        assert made.report.faults
        assert "model" in made.report.faults[0]
    assert not any("\n" in fault for fault in made.report.faults)
