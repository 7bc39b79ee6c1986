"""`load` and `Transcriber`: the same ids as transformers, over audio; errors in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from transformers import LogitsProcessorList

import mmspec
from mmspec.modalities.media.audio import load_audio
from tests.modalities.drafting import with_errors
from tests.modalities.test_whisper_parity import Counting, StopAt
from tests.modalities.tiny import (
    EOS,
    FIRST_TIME,
    TEXT_PIECES,
    saved,
    speech,
    tiny,
    tiny_processor,
)
from tests.test_generation import Collecting, one_line

RATE = 16_000


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A target, and drafters with the same, another and a wider vocabulary and more mel bins."""
    root = tmp_path_factory.mktemp("checkpoints")
    other = ("Ġ", *TEXT_PIECES[:26][::-1], *TEXT_PIECES[27:])
    nothing = {"lang_to_id": None, "task_to_id": None, "is_multilingual": False}
    made = {
        "target": saved(root / "target", tiny(5)),
        "same-weights": saved(root / "same-weights", tiny(5)),
        "other-seed": saved(root / "other-seed", tiny(11)),
        "padded": saved(root / "padded", tiny(11, vocab=112)),
        "unpadded": saved(root / "unpadded", tiny(11, vocab=108)),
        "wide": saved(root / "wide", tiny(5, vocab=112)),
        "other-words": saved(root / "other-words", tiny(11), tiny_processor(pieces=other)),
        "more-bins": saved(root / "more-bins", tiny(11, bins=12), tiny_processor(bins=12)),
        "english": saved(root / "english", tiny(5, says=nothing)),
    }
    return {name: str(path) for name, path in made.items()}


def reference(folder: str, samples: Any, **options: Any) -> list[int]:
    """What transformers says."""
    with mmspec.load(folder) as whole:
        features = whole.processor(samples, sampling_rate=RATE, return_tensors="pt").input_features
        return whole.model.generate(features, **options)[0].tolist()


ASKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"language": "en"}, {"language": "en"}),
    ({}, {}),
    ({"language": "de", "task": "translate"}, {"language": "de", "task": "translate"}),
    ({"language": "en", "timestamps": True}, {"language": "en", "return_timestamps": True}),
    ({"timestamps": True}, {"return_timestamps": True}),
    ({"language": "en", "max_new_tokens": 9}, {"language": "en", "max_new_tokens": 9}),
    (
        {"language": "en", "repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
        {"language": "en", "repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
    ),
]


class TestParity:
    @pytest.mark.parametrize(("asked", "theirs"), ASKED)
    @pytest.mark.parametrize("seed", [7, 8])
    @pytest.mark.parametrize("draft", ["none", "ngram", "early-exit:1", "other-seed"])
    def test_the_ids_are_transformers_own(
        self,
        asked: dict[str, Any],
        theirs: dict[str, Any],
        seed: int,
        draft: str,
        checkpoints: dict[str, str],
    ) -> None:
        samples, folder = speech(seed), checkpoints["target"]
        want = reference(folder, samples, **theirs)
        assert len(want) > 3
        with mmspec.load(folder, checkpoints.get(draft, draft), gamma=3) as whole:
            heard = whole.transcribe(samples, sampling_rate=RATE, **asked)
            assert list(heard.ids) == want
            assert not heard.report.faults

    def test_a_previous_text(self, checkpoints: dict[str, str]) -> None:
        samples, folder = speech(), checkpoints["target"]
        prompt = torch.tensor(tiny_processor().get_prompt_ids("the bad end"))
        for timestamps in (False, True):
            want = reference(
                folder,
                samples,
                language="en",
                prompt_ids=prompt,
                return_timestamps=timestamps,
            )
            for language, draft in (("en", "ngram"), ("en", checkpoints["other-seed"])):
                with mmspec.load(folder, draft, gamma=3) as whole:
                    heard = whole.transcribe(
                        samples,
                        sampling_rate=RATE,
                        language=language,
                        prompt="the bad end",
                        timestamps=timestamps,
                    )
                assert list(heard.ids) == want

    def test_a_previous_text_and_a_detected_language(self, checkpoints: dict[str, str]) -> None:
        samples, folder = speech(), checkpoints["target"]
        prompt = torch.tensor(tiny_processor().get_prompt_ids("the bad end"))
        want = reference(folder, samples, prompt_ids=prompt)
        with mmspec.load(folder, "ngram", gamma=3) as whole:
            heard = whole.transcribe(samples, sampling_rate=RATE, prompt="the bad end")
        assert list(heard.ids) == want

    def test_an_english_only_model(self, checkpoints: dict[str, str]) -> None:
        want = reference(checkpoints["english"], speech())
        with mmspec.load(checkpoints["english"], "early-exit:1", gamma=3) as whole:
            heard = whole.transcribe(speech(), sampling_rate=RATE)
        assert list(heard.ids) == want
        assert heard.language is None

    @pytest.mark.parametrize(
        "draft", ["same-weights", "other-seed", "padded", "other-words", "more-bins"]
    )
    @pytest.mark.parametrize("target", ["target", "wide"])
    @pytest.mark.parametrize("timestamps", [False, True])
    def test_drafting_checkpoints(
        self, draft: str, target: str, timestamps: bool, checkpoints: dict[str, str]
    ) -> None:
        """Padded vocabularies (E1, E2), another tokenizer (E3), own mel bins (G4)."""
        want = reference(checkpoints[target], speech(), language="en", return_timestamps=timestamps)
        with mmspec.load(checkpoints[target], checkpoints[draft], gamma=3) as whole:
            heard = whole.transcribe(
                speech(), sampling_rate=RATE, language="en", timestamps=timestamps
            )
            assert whole.shares_encoder == (draft == "same-weights")
        assert list(heard.ids) == want
        assert not heard.report.faults
        assert heard.report.proposed > 0
        if target == "target" and draft == "same-weights":
            assert heard.report.accepted == heard.report.proposed

    @pytest.mark.parametrize("kind", ["right", "wrong", "empty", "text"])
    @pytest.mark.parametrize("timestamps", [False, True])
    def test_hypotheses(self, kind: str, timestamps: bool, checkpoints: dict[str, str]) -> None:
        want = reference(
            checkpoints["target"], speech(), language="en", return_timestamps=timestamps
        )
        hypotheses: dict[str, Any] = {
            "right": [*want, EOS],
            "wrong": with_errors(want),
            "empty": "",
            "text": "the bad end of it",
        }
        with mmspec.load(checkpoints["target"], "hypothesis", gamma=3) as whole:
            heard = whole.transcribe(
                speech(),
                sampling_rate=RATE,
                language="en",
                timestamps=timestamps,
                hypothesis=hypotheses[kind],
            )
        assert list(heard.ids) == want
        assert not heard.report.faults
        if kind == "right":
            assert heard.report.accepted > 0

    def test_model_objects_draft_with_the_targets_ears(self, checkpoints: dict[str, str]) -> None:
        want = reference(checkpoints["target"], speech(), language="en")
        with mmspec.load(checkpoints["target"], tiny(11), gamma=3) as whole:
            heard = whole.transcribe(speech(), sampling_rate=RATE, language="en")
        assert list(heard.ids) == want
        assert not heard.report.faults
        assert heard.report.drafter_encoder_runs == heard.report.encoder_runs

    def test_processors_criteria_and_configs_of_transformers(
        self, checkpoints: dict[str, str]
    ) -> None:
        folder = checkpoints["target"]
        plain = reference(folder, speech(), language="en")
        stop = plain[7]
        want = reference(
            folder,
            speech(),
            language="en",
            logits_processor=LogitsProcessorList([Counting()]),
            stopping_criteria=[StopAt(stop)],
        )
        with mmspec.load(folder, "ngram", gamma=3) as whole:
            config = whole.model.generation_config.__class__.from_dict(
                whole.model.generation_config.to_dict()
            )
            heard = whole.transcribe(
                speech(),
                sampling_rate=RATE,
                language="en",
                logits_processor=[Counting()],
                stopping_criteria=[StopAt(stop)],
                generation_config=config,
            )
        assert list(heard.ids) == want

    def test_seeded_ids_are_the_same_for_every_drafter(self, checkpoints: dict[str, str]) -> None:
        heard = set()
        for draft in ("none", "ngram", "early-exit:2", checkpoints["other-seed"]):
            with mmspec.load(checkpoints["target"], draft, gamma=3) as whole:
                for timestamps in (False, True):
                    asked: dict[str, Any] = {"language": "en", "timestamps": timestamps}
                    said = whole.transcribe(
                        speech(), sampling_rate=RATE, temperature=0.8, seed=4, **asked
                    )
                    heard.add((timestamps, said.ids))
                    assert said.report.parity == "L1"
        assert len(heard) == 2


class TestTranscription:
    def test_text_segments_and_counts(self, checkpoints: dict[str, str]) -> None:
        with mmspec.load(checkpoints["target"]) as whole:
            heard = whole.transcribe(
                speech(), sampling_rate=RATE, language="english", timestamps=True
            )
            words = [token for token in heard.ids if token < FIRST_TIME]
            text = whole.processor.tokenizer.decode(words, skip_special_tokens=True)
        assert heard.text == text.strip()
        assert tuple(token for part in heard.segments for token in part.ids) == heard.ids
        assert heard.language == "en"
        assert heard.report.encoder_runs >= 1
        assert all(0 <= part.start_s <= part.end_s for part in heard.segments)

    def test_one_encoder_run_for_one_window(self, checkpoints: dict[str, str]) -> None:
        for draft, runs in (("none", 0), (checkpoints["other-seed"], 1), ("early-exit:1", 0)):
            with mmspec.load(checkpoints["target"], draft, gamma=2) as whole:
                heard = whole.transcribe(
                    speech(), sampling_rate=RATE, language="en", max_new_tokens=8
                )
            assert heard.report.encoder_runs == 1
            assert heard.report.drafter_encoder_runs == runs

    def test_files_and_arrays_are_the_same_audio(
        self, checkpoints: dict[str, str], tmp_path: Path
    ) -> None:
        samples = speech().astype(np.float32)
        path = tmp_path / "clip.wav"
        soundfile.write(path, samples, RATE, subtype="FLOAT")
        with mmspec.load(checkpoints["target"]) as whole:
            heard = [
                whole.transcribe(given, language="en", **rate)
                for given, rate in (
                    (samples, {"sampling_rate": RATE}),
                    (torch.from_numpy(samples), {"sampling_rate": RATE}),
                    (path, {}),
                    (str(path), {"sampling_rate": RATE}),
                )
            ]
        assert len({said.ids for said in heard}) == 1

    def test_a_streamer_gets_committed_ids(self, checkpoints: dict[str, str]) -> None:
        streamer = Collecting()
        with mmspec.load(checkpoints["target"], "ngram", gamma=3) as whole:
            heard = whole.transcribe(
                speech(), sampling_rate=RATE, language="en", streamer=streamer, max_new_tokens=9
            )
        assert tuple(streamer.ids[4 : 4 + len(heard.ids)]) == heard.ids
        assert streamer.ends == 1

    @pytest.mark.parametrize("draft", ["none", "ngram", "early-exit:1"])
    def test_streamed_pieces_are_the_text(self, draft: str, checkpoints: dict[str, str]) -> None:
        asked: dict[str, Any] = {"language": "en", "sampling_rate": RATE}
        with mmspec.load(checkpoints["target"], draft, gamma=3) as whole:
            for more in (
                {},
                {"timestamps": True},
                {"prompt": "the end", "max_new_tokens": 12, "repetition_penalty": 1.2},
                {"logits_processor": [Counting()], "stopping_criteria": [], "seed": 3},
            ):
                pieces = list(whole.stream(speech(), **asked, **more))
                more = {**more, "logits_processor": [Counting()]} if "seed" in more else more
                heard = whole.transcribe(speech(), **asked, **more)
                assert "".join(pieces).strip() == heard.text

    def test_a_processors_memory_is_a_requests_own(self, checkpoints: dict[str, str]) -> None:
        given = Counting()
        asked = {"sampling_rate": RATE, "language": "en", "logits_processor": [given]}
        with mmspec.load(checkpoints["target"], "ngram", gamma=3) as whole:
            alone = [
                whole.transcribe(speech(seed), **{**asked, "logits_processor": [Counting()]}).ids
                for seed in (7, 8, 9)
            ]
            requests = [{"audio": speech(seed), **asked} for seed in (7, 8, 9)]
            beside = dict(whole.outcomes(requests, 3))
        assert [beside[number].ids for number in range(3)] == alone
        assert given.counts == {}

    def test_a_stream_that_is_left_early_leaves_nothing(self, checkpoints: dict[str, str]) -> None:
        with mmspec.load(checkpoints["target"], "early-exit:1", gamma=3) as whole:
            want = whole.transcribe(speech(), sampling_rate=RATE, language="en").ids
            stream = whole.stream(speech(), sampling_rate=RATE, language="en")
            next(iter(stream))
            stream.close()  # type: ignore[attr-defined]
            assert not [
                name for name, module in whole.model.named_modules() if "forward" in vars(module)
            ]
            assert whole.transcribe(speech(), sampling_rate=RATE, language="en").ids == want


class TestRefusals:
    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ({"language": "klingon"}, "language 'klingon': this model knows de, en"),
            ({"language": "fr"}, "language 'fr': this model knows de, en"),
            ({"language": ["en"]}, r"language \['en'\]: expected one name"),
            ({"language": "en", "is_multilingual": False}, "English-only"),
            ({"logprob_threshold": "low"}, "logprob_threshold: found 'low', expected a number"),
            ({"max_new_tokens": 2.5}, "max_new_tokens: found 2.5, expected a whole number"),
            ({"max_new_tokens": "7"}, "max_new_tokens: found .7., expected a whole number"),
            ({"repetition_penalty": -1.0}, "strictly positive float, but is -1.0"),
            ({"prompt": "a b c d e f g h i j k l", "max_length": 1}, "max_length 1 leaves no room"),
            ({"language": "en", "prompt": [4, 5]}, "prompt: found list, expected a text"),
            ({"timestamps": True, "eos_token_id": [49, 93]}, "found eos_token_id .* one id"),
            ({"language": "en", "task": "sing"}, "unknown task 'sing'"),
            ({"language": "en", "prompt": "the " * 40}, "the prompt takes .* of the decoder's 32"),
            ({"language": "en", "max_new_tokens": 40}, "max_new_tokens 40 .* exceed"),
            ({"language": "en", "max_new_tokens": 0}, "max_new_tokens"),
            ({"language": "en", "num_beams": 3}, "beam search"),
            ({"language": "en", "num_return_sequences": 2}, "num_return_sequences"),
            ({"language": "en", "no_such_option": 2}, "unknown generation options: no_such_option"),
            ({"language": "en", "prompt": "a <|endoftext|> b"}, "prompt: "),
            ({"language": "en", "temperature": -1.0}, "temperature"),
            ({"language": "en", "temperature": float("nan")}, "temperature"),
            ({"language": "en", "temperature": ()}, "temperature must be 0 or more, got none"),
            ({"language": "en", "temperature": (0.0, "hot")}, "0 or more, got hot"),
            ({"language": "en", "prompt_condition_type": "often"}, "'often': expected first-seg"),
            ({"language": "en", "prompt_condition_type": "all-segments"}, "needs condition_on_pr"),
        ],
    )
    def test_options(self, asked: dict[str, Any], says: str, checkpoints: dict[str, str]) -> None:
        with mmspec.load(checkpoints["target"], "ngram", gamma=3) as whole:
            with pytest.raises(mmspec.MMSpecError, match=says) as error:
                whole.transcribe(speech(), sampling_rate=RATE, **asked)
            one_line(error.value)

    def test_a_language_for_an_english_only_model(self, checkpoints: dict[str, str]) -> None:
        with mmspec.load(checkpoints["english"]) as whole:
            for asked in ({"language": "en"}, {"task": "translate"}):
                with pytest.raises(mmspec.MMSpecError, match="English-only") as error:
                    whole.transcribe(speech(), sampling_rate=RATE, **asked)
                one_line(error.value)

    def test_a_hypothesis_is_needed_and_checked(self, checkpoints: dict[str, str]) -> None:
        with mmspec.load(checkpoints["target"], "hypothesis") as whole:
            with pytest.raises(mmspec.MMSpecError, match="needs hypothesis=") as error:
                whole.transcribe(speech(), sampling_rate=RATE, language="en")
            one_line(error.value)
            for wrong in ([4, 500], [-1]):
                with pytest.raises(mmspec.MMSpecError, match="outside the vocabulary") as error:
                    whole.transcribe(speech(), sampling_rate=RATE, language="en", hypothesis=wrong)
                one_line(error.value)

    def test_audio(self, checkpoints: dict[str, str]) -> None:
        bad = speech().copy()
        bad[800] = np.nan
        with mmspec.load(checkpoints["target"]) as whole:
            for given, rate, says in (
                (np.zeros(0), RATE, "no samples"),
                (bad, RATE, "NaN"),
                (speech(), None, "sampling_rate"),
                (np.zeros(8000), RATE, "silence"),
            ):
                with pytest.raises(mmspec.MMSpecError, match=says) as error:
                    whole.transcribe(given, sampling_rate=rate, language="en")
                one_line(error.value)

    def test_a_model_object_has_no_processor(self) -> None:
        with (
            mmspec.load(tiny(5)) as whole,
            pytest.raises(mmspec.MMSpecError, match="without the processor") as error,
        ):
            whole.transcribe(speech(), sampling_rate=RATE, language="en")
        one_line(error.value)

    def test_a_closed_transcriber(self, checkpoints: dict[str, str]) -> None:
        whole = mmspec.load(checkpoints["target"])
        whole.close()
        with pytest.raises(mmspec.MMSpecError, match="closed: load a new one"):
            whole.transcribe(speech(), sampling_rate=RATE)

    def test_timestamps_that_the_model_does_not_have(self, tmp_path: Path) -> None:
        folder = saved(tmp_path / "none", tiny(5, says={"no_timestamps_token_id": None}))
        with (
            mmspec.load(str(folder)) as whole,
            pytest.raises(mmspec.MMSpecError, match="timestamps") as error,
        ):
            whole.transcribe(speech(), sampling_rate=RATE, language="en", timestamps=True)
        one_line(error.value)


def test_the_sampling_rate_is_honoured(checkpoints: dict[str, str]) -> None:
    """44.1 kHz is resampled, not taken for 16 kHz (G12)."""
    at_44 = np.interp(np.arange(0, 0.9, 1 / 44_100), np.arange(len(speech())) / RATE, speech())
    with mmspec.load(checkpoints["target"]) as whole:
        direct = whole.transcribe(at_44, sampling_rate=44_100, language="en")
        by_hand = whole.transcribe(load_audio(at_44, 44_100), sampling_rate=RATE, language="en")
    assert direct.ids == by_hand.ids


class TestFaces:
    def test_a_segment_ends_with_the_recording(self, checkpoints: dict[str, str]) -> None:
        with mmspec.load(checkpoints["target"]) as whole:
            window_s = whole.checkpoint.window_s
            samples = speech(7)[: int(0.6 * window_s * RATE)]
            said = whole.transcribe(samples, sampling_rate=RATE, language="en", timestamps=False)
        assert said.segments[-1].end_s == pytest.approx(len(samples) / RATE)
        assert said.segments[-1].end_s < window_s

    def test_a_model_object_transcribes_with_its_processor(
        self, checkpoints: dict[str, str]
    ) -> None:
        with mmspec.load(checkpoints["target"]) as named:
            model, processor = named.model, named.processor
            expected = named.transcribe(speech(7), sampling_rate=RATE, language="en").ids
        with mmspec.load(model, processor=processor) as given:
            assert given.transcribe(speech(7), sampling_rate=RATE, language="en").ids == expected

    def test_packs_are_made_once_and_only_stand_in_while_decoding(
        self, checkpoints: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mmspec.kernels import packed

        monkeypatch.setattr(packed, "SMALLEST", 1)
        with mmspec.load(checkpoints["target"]) as whole:
            layer = whole.model.get_decoder().layers[0].fc1
            first = packed._packs[id(layer)]
            for _ in range(2):
                whole.transcribe(speech(7), sampling_rate=RATE, language="en")
                assert "forward" not in vars(layer)
                assert packed._packs[id(layer)] is first
