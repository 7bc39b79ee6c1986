"""`Speaker`: models that say codes, by name and as objects, with sound and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import mmspec
from mmspec.compat import quiet
from mmspec.errors import InputError, MMSpecError, ModelError, OptionError
from mmspec.tasks.tts.code_files import read_codes
from mmspec.tasks.tts.speaker import Speaker
from tests.modalities.speech import bed_csm, bed_orpheus, bed_valle
from tests.modalities.speech.bed_musicgen import tiny, tiny_decoder
from tests.speaking_support import Voice, processor, saved

TEXT = "a red cup"
SHORT = {"max_new_tokens": 18}


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Voice:
    return saved(tmp_path_factory.mktemp("voice"))


@pytest.fixture(scope="module")
def plain(voice: Voice) -> Iterator[Speaker]:
    with quiet():
        speaker = mmspec.load(voice.target)
    with speaker:
        yield speaker


def load(voice: Voice, draft: Any, **how: Any) -> Speaker:
    with quiet():
        return mmspec.load(voice.target, draft, **how)


@pytest.mark.parametrize("kind", ["drafter", "heads", "lookup", "repeat", "several", "itself"])
def test_whoever_drafts_the_codes_are_the_same(voice: Voice, plain: Speaker, kind: str) -> None:
    expected = plain.speak(TEXT, **SHORT)
    drafts: dict[str, Any] = {
        "drafter": voice.drafter,
        "heads": f"heads:{voice.heads}",
        "lookup": "lookup",
        "repeat": "repeat",
        "several": ["lookup", str(voice.drafter)],
        "itself": plain.model,
    }
    with load(voice, drafts[kind], gamma=3) as speaker:
        said = speaker.speak(TEXT, **SHORT)
        again = speaker.speak(TEXT, earlier=[said], **SHORT)
    assert np.array_equal(said.codes, expected.codes)
    assert np.array_equal(again.codes, expected.codes)
    assert said.report.faults == again.report.faults == ()
    assert said.samples is not None
    assert expected.samples is not None
    np.testing.assert_array_equal(said.samples, expected.samples)
    if kind == "itself":
        assert said.report.draft_acceptance_rate == 1.0
    if kind == "lookup":
        assert again.report.target_forwards < said.report.target_forwards, "it was said before"


def test_every_code_knows_the_step_that_decided_it(plain: Speaker) -> None:
    said = plain.speak(TEXT, **SHORT)
    frames, codebooks = said.codes.shape
    assert said.decided_at is not None
    assert said.decided_at.shape == said.codes.shape
    assert sorted(set(said.decided_at.flatten().tolist())) == list(range(len(said.origins)))
    share = said.report.by_codebook
    assert share is not None
    assert share.decided == frames * codebooks
    for frame, row in enumerate(said.decided_at):
        assert row.tolist() == [frame + delay for delay in range(codebooks)]


def test_how_long_it_sounds_is_what_was_asked_for(plain: Speaker) -> None:
    said = plain.speak(TEXT, seconds=0.15)
    assert said.seconds == pytest.approx(0.15)
    assert said.samples is not None
    assert len(said.samples) == 0.15 * 1600
    assert said.finish_reason == "length"


def test_sound_in_pieces_is_the_sound(voice: Voice, plain: Speaker) -> None:
    said = plain.speak(TEXT, **SHORT)
    with load(voice, plain.model, gamma=4) as speaker:
        pieces = list(speaker.stream(TEXT, **SHORT))
    assert said.samples is not None
    np.testing.assert_allclose(np.concatenate(pieces), said.samples, atol=1e-5)


def test_seeds_repeat_and_temperatures_draw(voice: Voice, plain: Speaker) -> None:
    first = plain.speak(TEXT, temperature=1.0, seed=3, **SHORT)
    assert first.report.parity == "L1"
    assert np.array_equal(plain.speak(TEXT, temperature=1.0, seed=3, **SHORT).codes, first.codes)
    assert not np.array_equal(
        plain.speak(TEXT, temperature=1.0, seed=4, **SHORT).codes, first.codes
    )
    with load(voice, voice.drafter, gamma=2) as speaker:
        assert np.array_equal(
            speaker.speak(TEXT, temperature=1.0, seed=3, **SHORT).codes, first.codes
        )
    assert plain.speak(TEXT, temperature=1.0, **SHORT).report.parity == "L2"


def test_guidance_and_grounding(plain: Speaker) -> None:
    guided = plain.speak(TEXT, guidance=3.0, grounding=0.5, **SHORT)
    assert not np.array_equal(guided.codes, plain.speak(TEXT, **SHORT).codes)
    assert guided.grounding is not None
    assert len(guided.grounding.drops) == len(guided.origins)
    assert guided.report.by_class is not None
    assert sum(share.tokens for share in guided.report.by_class.values()) == len(guided.origins)


def test_several_side_by_side(plain: Speaker) -> None:
    texts = ["a cup", "a red cup", "cups"]
    together = plain.speak_batch(texts, batch=2, **SHORT)
    for text, said in zip(texts, together, strict=True):
        assert said.text == text
        assert np.array_equal(said.codes, plain.speak(text, **SHORT).codes)


def test_a_sound_file_and_its_codes(plain: Speaker, tmp_path: Path) -> None:
    said = plain.speak(TEXT, **SHORT)
    beside = said.save(tmp_path / "said.wav")
    sound, rate_hz = soundfile.read(tmp_path / "said.wav")
    assert (len(sound), rate_hz) == (len(said.codes) * 16, 1600)
    kept = read_codes(beside)
    assert np.array_equal(kept.codes, said.codes)
    assert kept.decided_at is not None
    assert kept.family == "musicgen"
    assert said.to_dict()["report"]["by_codebook"]["decided"] == said.codes.size


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, r"text: found '', expected words to say"),
        (" \n", {}, r"expected words to say"),
        (None, {}, r"text: found None, expected words to say"),
        ("übel", {}, r"the character .ü."),
        ("a" * 60, {}, r"61 tokens, its encoder was made for 20"),
        (TEXT, {"seconds": 0}, r"seconds: found 0, expected more than 0"),
        (TEXT, {"seconds": "x"}, r"seconds: found 'x', expected a number"),
        (TEXT, {"temperature": -1}, r"temperature: found -1, expected a number"),
        (TEXT, {"guidance": float("nan")}, r"guidance: found nan"),
        (TEXT, {"max_new_tokens": 2}, r"rows are too few"),
        (TEXT, {"max_new_tokens": 500}, r"64 positions"),
        (TEXT, {"num_beams": 2}, r"beam"),
        (TEXT, {"budget": 1.0}, r"budget: only approximate"),
        (TEXT, {"nonsense": 1}, r"nonsense"),
    ],
)
def test_what_cannot_be_said(
    plain: Speaker, text: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(MMSpecError, match=message) as raised:
        plain.speak(text, **{**SHORT, **options})
    assert "\n" not in str(raised.value)


def test_a_closed_speaker_says_so(voice: Voice) -> None:
    speaker = load(voice, "none")
    speaker.close()
    with pytest.raises(OptionError, match="this speaker is closed"):
        speaker.speak(TEXT)


def test_drafters_that_do_not_fit(voice: Voice, tmp_path: Path) -> None:
    with quiet():
        other = tiny_decoder(codebooks=6)
    with pytest.raises(ModelError, match=r"draft: .*4 codebooks.*6 codebooks"):
        load(voice, other)
    with pytest.raises(ModelError, match=r"draft: .*holds no heads"):
        load(voice, f"heads:{tmp_path}")
    with pytest.raises(ModelError, match=r"draft: found an empty name"):
        load(voice, "lookup+")


def test_a_model_object_and_its_processor() -> None:
    with quiet(), mmspec.load(tiny(), processor=processor()) as speaker:
        assert speaker.speak(TEXT, sound=False, **SHORT).samples is None


def test_a_language_model_in_the_orpheus_layout(tmp_path: Path) -> None:
    model, family = bed_orpheus.made(), bed_orpheus.STRICT
    with mmspec.load(model, "lookup", family=family) as speaker:
        said = speaker.speak("", inputs=bed_orpheus.inputs(), max_new_tokens=36)
        assert said.samples is None
        assert said.codes.shape[1] == 7
        tokens = said.sequence[-len(said.origins) :]
        assert said.decided_at is not None
        for row, steps in zip(said.codes.tolist(), said.decided_at.tolist(), strict=True):
            books = speaker.descriptor.codebooks
            assert [tokens[step] for step in steps] == [
                book.id_of(code) for book, code in zip(books, row, strict=True)
            ]
        with pytest.raises(OptionError, match="there is no sound to write"):
            said.save(tmp_path / "said.wav")
        with pytest.raises(OptionError, match="no codec"):
            next(iter(speaker.stream("a")))
        nothing = speaker.speak("", inputs=bed_orpheus.inputs(), max_new_tokens=1)
        assert nothing.codes.shape == (0, 7)
        assert read_codes(nothing.save_codes(tmp_path / "nothing.npz")).codes.shape == (0, 7)
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(MMSpecError, match=r"can.t be loaded .*tokenizer"):
        mmspec.load(f"orpheus:{tmp_path / 'model'}")
    with pytest.raises(ModelError, match="family: found 'nobody', expected orpheus"):
        mmspec.load(model, family="nobody")


def test_a_model_of_our_own_is_found_by_its_directory(tmp_path: Path) -> None:
    bed_valle.tiny().save_pretrained(tmp_path)
    with mmspec.load(tmp_path, "lookup") as speaker:
        said = speaker.speak("a bad cafe", max_new_tokens=12)
        assert said.filled
        assert said.codes.shape[1] == bed_valle.BOOKS
        with pytest.raises(OptionError, match="no codec"):
            list(speaker.stream("a bad cafe"))


def test_inputs_instead_of_a_text(plain: Speaker) -> None:
    made = processor()(text=[TEXT], return_tensors="pt")
    said = plain.speak("", inputs=dict(made), **SHORT)
    assert np.array_equal(said.codes, plain.speak(TEXT, **SHORT).codes)
    with pytest.raises(InputError):
        plain.speak("   ")


def test_frames_in_depth_count_their_passes() -> None:
    with quiet():
        model, smaller = bed_csm.tiny(), bed_csm.tiny(1)
        plain = mmspec.load(model, processor=bed_csm.processor())
        drafted = mmspec.load(model, smaller, gamma=2, processor=bed_csm.processor())
        copied = mmspec.load(model, model, gamma=2, processor=bed_csm.processor())
    expected = plain.speak("so", max_new_tokens=7, grounding=True)
    assert expected.report.depth_forwards > 0
    assert expected.grounding is not None
    assert len(expected.grounding.drops) == len(expected.origins)
    for speaker in (drafted, copied):
        said = speaker.speak("so", max_new_tokens=7)
        assert np.array_equal(said.codes, expected.codes)
        assert said.report.faults == ()
        assert said.report.drafter_depth_forwards > 0
    assert said.report.draft_acceptance_rate == 1.0
    pieces = np.concatenate(list(plain.stream("so", max_new_tokens=7)))
    assert expected.samples is not None
    np.testing.assert_allclose(pieces, expected.samples, atol=1e-5)
