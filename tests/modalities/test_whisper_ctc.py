"""Drafts from the sound: whatever a head or a CTC model hears, the target's text stays its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import mmspec
from mmspec.errors import MMSpecError, ModelError, OptionError
from mmspec.modalities.whisper import ctc_model

from .ctc import KnowingHead, saved_ctc_model, saved_head
from .tiny import features, shared, speech, tiny, tiny_processor

RATE = 16_000
SHORT, LONG = speech(), speech(seconds=2.57, seed=3)
REQUESTS: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "short": (SHORT, {}),
    "long": (LONG, {}),
    "times": (LONG, {"timestamps": True}),
    "prompt": (LONG, {"prompt": "the a b", "condition_on_prev_tokens": True}),
    "german": (SHORT, {"language": "de"}),
    "fallback": (LONG, {"temperature": (0.0, 0.4, 0.8), "logprob_threshold": 0.0, "seed": 3}),
    "keyed": (SHORT, {"temperature": 0.7, "seed": 5, "rule": "keyed"}),
    "chunks": (LONG, {"chunk_s": 0.9}),
    "chunks-together": (LONG, {"chunk_s": 0.9, "batch": 3}),
}


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"ctc:{saved_head(tmp_path_factory.mktemp('head'), shared(1))}"


def transcriber(draft: str = "none", gamma: int | str = 4) -> mmspec.Transcriber:
    loaded = mmspec.load(shared(1), draft, gamma=gamma, processor=tiny_processor(), device="cpu")
    assert isinstance(loaded, mmspec.Transcriber)
    return loaded


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_head_changes_no_output(head: str, request_name: str) -> None:
    samples, options = REQUESTS[request_name]
    drafted = transcriber(head).transcribe(samples, sampling_rate=RATE, **options)
    plain = transcriber().transcribe(samples, sampling_rate=RATE, **options)
    assert drafted.ids == plain.ids
    assert not drafted.report.faults
    assert drafted.report.proposed > 0


def test_free_sampling_is_judged_by_its_rule(head: str) -> None:
    said = transcriber(head).transcribe(SHORT, sampling_rate=RATE, temperature=0.7, seed=1)
    assert not said.report.faults
    assert said.report.proposed > 0


def test_several_recordings_each_with_its_own_sound(head: str) -> None:
    recordings = [speech(seed=seed, seconds=0.3 + 0.2 * seed) for seed in range(5)]
    resampled = [torch.from_numpy(samples) for samples in recordings]
    drafted = transcriber(head).transcribe_batch(resampled, batch=3, sampling_rate=RATE)
    plain = transcriber().transcribe_batch(resampled, batch=3, sampling_rate=RATE)
    assert [said.ids for said in drafted] == [said.ids for said in plain]
    assert sum(said.report.proposed for said in drafted) > 0


def test_speech_as_it_comes(head: str) -> None:
    texts = []
    for draft in (head, "none"):
        with transcriber(draft).live(step_s=0.3) as stream:
            for start in range(0, len(LONG), 4000):
                stream.feed(LONG[start : start + 4000], RATE)
            stream.finish()
            texts.append(stream.text)
    assert texts[0] == texts[1]


def test_translation_is_left_alone(head: str) -> None:
    said = transcriber(head).transcribe(SHORT, sampling_rate=RATE, task="translate", language="de")
    assert said.report.proposed == 0
    assert any("another language" in note for note in said.report.notes)


def test_a_head_that_hears_right_is_kept(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, recogniser = transcriber().transcribe(SHORT, sampling_rate=RATE), transcriber(head)
    monkeypatch.setattr(recogniser.draft, "_head", KnowingHead(plain.text))
    said = recogniser.transcribe(SHORT, sampling_rate=RATE)
    assert said.ids == plain.ids
    assert said.report.accepted >= 6  # of fifteen characters that there are states for


def test_every_window_is_heard_by_its_own_states(
    head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The middle layer's and the last ones, as far as the recording goes."""
    recogniser, knowing = transcriber(head), KnowingHead("a")
    monkeypatch.setattr(recogniser.draft, "_head", knowing)
    made: list[Any] = []
    encoder = recogniser.model.get_encoder()
    hook = encoder.register_forward_hook(lambda module, given, output: made.append(output))
    recogniser.transcribe(LONG, sampling_rate=RATE)
    hook.remove()
    assert len(made) == len(knowing.shown) > 2
    for shown, output in zip(knowing.shown, made, strict=True):
        states = torch.cat((output.hidden_states[1], output.last_hidden_state), -1)
        torch.testing.assert_close(shown, states[0, : len(shown)])
    assert {len(shown) for shown in knowing.shown[:-1]} == {50}
    assert len(knowing.shown[-1]) < 50


def test_another_targets_head_is_refused(tmp_path: Path) -> None:
    saved_head(tmp_path, tiny(2))
    with pytest.raises(ModelError, match="trained for another encoder"):
        transcriber(f"ctc:{tmp_path}")


@pytest.mark.parametrize("content", ["missing", "text", "weights", "other-shape", "config"])
def test_what_is_no_head_is_refused_in_a_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "head.safetensors"
    if content == "text":
        path.write_text("no head")
    elif content == "weights":
        save_file({"weight": torch.zeros(2)}, path)
    elif content == "other-shape":
        save_file({"weight": torch.zeros(2)}, path, {"config": '{"shape": {"attentive": [1]}}'})
    elif content == "config":
        save_file({"weight": torch.zeros(2)}, path, {"config": "[]"})
    with pytest.raises(MMSpecError, match=r"head|CTC model") as refused:
        transcriber(f"ctc:{path}")
    assert "\n" not in str(refused.value)


def test_nothing_named() -> None:
    with pytest.raises(OptionError, match="expected ctc:HEAD"):
        transcriber("ctc")


def test_inside_generate_there_is_no_middle_layer(head: str) -> None:
    with pytest.raises(ModelError, match=r"use mmspec.load"):
        mmspec.generate(shared(1), features(), draft=head, processor=tiny_processor())


@pytest.mark.parametrize("kind", ["wav2vec2", "hubert", "wavlm", "unispeech"])
def test_a_ctc_model_of_the_library(tmp_path: Path, kind: str) -> None:
    """Capitals only, heard once over the whole recording."""
    draft = f"ctc:{saved_ctc_model(tmp_path, kind)}"
    for samples, options in (REQUESTS["short"], REQUESTS["times"], REQUESTS["chunks"]):
        drafted = transcriber(draft).transcribe(samples, sampling_rate=RATE, **options)
        plain = transcriber().transcribe(samples, sampling_rate=RATE, **options)
        assert drafted.ids == plain.ids
        assert not drafted.report.faults
        assert drafted.report.proposed > 0


def test_a_long_recording_is_heard_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ctc_model.load_ctc_model(str(saved_ctc_model(tmp_path)), "cpu")
    model.processor.do_normalize = False  # or each piece is as loud as the whole
    samples = speech(seconds=7.3)
    whole = model.features(samples)
    monkeypatch.setattr(ctc_model, "PIECE_S", 2)
    monkeypatch.setattr(ctc_model, "MARGIN_S", 1)
    pieces = model.features(samples)
    assert whole.shape == pieces.shape == (1, 30, 365)
    agree = (whole.argmax(1) == pieces.argmax(1)).float().mean()
    assert agree > 0.9


def test_what_is_no_ctc_model_is_refused_in_a_line(tmp_path: Path) -> None:
    tiny(1).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no CTC model can be loaded") as refused:
        transcriber(f"ctc:{tmp_path}")
    assert "\n" not in str(refused.value)
