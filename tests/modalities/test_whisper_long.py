"""Recordings of any length: the ids are those of transformers' own long-form `generate`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import mmspec
from mmspec.compare.comparison import Comparer
from mmspec.drafting import draft_for
from mmspec.engine import Steps
from mmspec.errors import InputError, OptionError
from mmspec.loading import sample_path
from mmspec.modalities.media.audio import load_audio
from mmspec.modalities.whisper import features as whisper_features
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.decode import Recognition
from mmspec.modalities.whisper.draft import ModelDraft
from mmspec.modalities.whisper.fallback import Fallback, Verdict
from mmspec.modalities.whisper.hypothesis_cursor import FAR_RUN, NEAR, HypothesisCursor
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.modalities.whisper.stable_tokens import StableTokens
from mmspec.target import Pass
from mmspec.tasks.asr.peers import MMSpecPeer, quiet
from mmspec.tasks.asr.transcriber import Transcriber

from .drafting import with_errors
from .tiny import (
    CONTEXT,
    DE,
    EOS,
    FIRST_TIME,
    TRANSCRIBE,
    TRANSLATE,
    english_only,
    shared,
    speech,
    tiny,
    tiny_processor,
)

RATE, LONG_S = 16_000, 2.57
PROMPT = "the a b c d e"


def with_pauses() -> np.ndarray:
    """Bursts, nearly nothing between them, one of them cut by every window's edge."""
    samples = speech(seconds=LONG_S, seed=3)
    time = np.arange(len(samples)) / RATE
    return np.where((time + 0.3) % 1.3 < 0.8, samples, 1e-5 * samples).astype(np.float32)


def music() -> np.ndarray:
    """Chords that go on and on: no speech at all."""
    time = np.arange(int(2.2 * RATE)) / RATE
    chord = sum(np.sin(2 * np.pi * pitch * time) for pitch in (220, 277.2, 329.6, 440))
    return (0.2 * chord * (1 + np.sin(2 * np.pi * 2 * time))).astype(np.float32)


def nearly_silent() -> np.ndarray:
    return (1e-6 * np.random.default_rng(0).standard_normal(int(2.5 * RATE))).astype(np.float32)


@functools.cache
def processor(bins: int = 8) -> Any:
    return tiny_processor(bins)


@functools.cache
def recogniser(model: Callable[[], Any], draft: str = "none", gamma: int | str = 3) -> Transcriber:
    whisper = Whisper.of(model(), processor())
    others: dict[str, Callable[[], Whisper]] = {
        "same-weights": lambda: Whisper.of(model(), processor()),
        "other-seed": lambda: Whisper.of(shared(11), processor()),
        "other-ears": lambda: Whisper.of(tiny(5, bins=12), processor(12)),
    }
    kind: Any = draft_for(draft, whisper, False) if draft not in others else None
    return Transcriber(whisper, kind or ModelDraft(whisper, others[draft]()), gamma)


five = functools.partial(shared, 5)
"""A model that closes segments often: a window takes several goes."""


def expected(model: Any, samples: np.ndarray, **asked: Any) -> tuple[int, ...]:
    """What transformers says."""
    extractor = processor().feature_extractor
    long = len(samples) > RATE
    whole = {"truncation": False, "padding": "longest"} if long else {}
    made = extractor(samples, sampling_rate=RATE, return_tensors="pt", **whole)
    if "prompt" in asked:
        asked["prompt_ids"] = processor().get_prompt_ids(asked.pop("prompt"), return_tensors="pt")
    if long:
        asked.setdefault("return_timestamps", True)
    with quiet():
        ids = model.generate(made.input_features, **asked)[0].tolist()
    return tuple(ids[:-1] if ids[-1:] == [EOS] else ids)


def recognition(whole: Transcriber, second_look: Any = None, **asked: Any) -> Recognition:
    """`transcribe`, about to begin."""
    features = functools.partial(Whisper.features, samples=with_pauses())
    request = TranscriptionRequest().having(asked)
    return Recognition(whole._pair, features, request, LONG_S, second_look)


def heard(whole: Transcriber, samples: np.ndarray, **asked: Any) -> mmspec.Transcription:
    said = whole.transcribe(samples, sampling_rate=RATE, **asked)
    if said.report.faults:
        raise AssertionError(said.report.faults)
    if len(said.origins) != len(said.ids):
        raise AssertionError((len(said.origins), len(said.ids)))
    return said


OTHERS = ("same-weights", "ngram", "other-seed", "early-exit:2", "other-ears")
THRESHOLDS: dict[str, Any] = {"temperature": (0.0,), "logprob_threshold": -0.9}
SHOWN: dict[str, Any] = {"condition_on_prev_tokens": True}
SCENARIOS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "plain": (five, {}),
    "named-language": (five, {"language": "german", "task": "translate"}),
    "shown": (five, SHOWN),
    "prompt": (five, {"prompt": PROMPT}),
    "prompt-shown": (five, {"prompt": PROMPT, **SHOWN}),
    "prompt-always": (
        functools.partial(shared, 1),
        {"prompt": "the a", **SHOWN, "prompt_condition_type": "all-segments"},
    ),
    "limit": (five, {"max_new_tokens": 9}),
    "limit-shown": (five, {"max_new_tokens": 9, **SHOWN}),
    "penalty": (five, {"repetition_penalty": 1.3, **SHOWN}),
    "english": (english_only, {}),
    "english-shown": (english_only, SHOWN),
    "growing-limit": (functools.partial(tiny, 5, says={"max_length": 6}), SHOWN),
    "no-mark": (functools.partial(tiny, 5, says={"prev_sot_token_id": None}), SHOWN),
    "skips": (five, {**THRESHOLDS, "no_speech_threshold": 0.002}),
    "skips-shown": (five, {**THRESHOLDS, **SHOWN, "no_speech_threshold": 0.002}),
    "skips-english": (english_only, {**THRESHOLDS, "no_speech_threshold": 0.004}),
    "loops": (five, {**SHOWN, "temperature": (0.0, 0.0), "compression_ratio_threshold": 0.8}),
    "all-thresholds": (
        functools.partial(shared, 9),
        {
            **SHOWN,
            "temperature": (0.0, 0.0, 0.0),
            "logprob_threshold": -0.8,
            "compression_ratio_threshold": 0.9,
            "no_speech_threshold": 0.01,
        },
    ),
}


@functools.cache
def made(name: str) -> Any:
    return SCENARIOS[name][0]()


@functools.cache
def reference(name: str) -> tuple[int, ...]:
    return expected(made(name), with_pauses(), **SCENARIOS[name][1])


def of(name: str) -> Callable[[], Any]:
    return functools.partial(made, name)


def test_the_scenarios_are_not_trivial() -> None:
    outputs = {name: reference(name) for name in SCENARIOS}
    assert len(set(outputs.values())) > len(SCENARIOS) - 4
    assert min(len(ids) for name, ids in outputs.items() if "skips" not in name) >= 4
    for skips, whole in (
        ("skips", "plain"),
        ("skips-shown", "shown"),
        ("skips-english", "english"),
    ):
        assert 0 < len(outputs[skips]) <= len(outputs[whole]), skips
    assert len(outputs["skips"]) < len(outputs["plain"])


@pytest.mark.parametrize("draft", ["none", *OTHERS])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_ids_are_transformers_own(name: str, draft: str) -> None:
    said = heard(recogniser(of(name), draft), with_pauses(), **SCENARIOS[name][1])
    assert said.ids == reference(name)
    assert said.report.encoder_runs >= 3


@pytest.mark.parametrize("gamma", ["adaptive", 0, 1, 40])
@pytest.mark.parametrize("draft", ["same-weights", "other-ears", "early-exit:1"])
def test_the_ids_are_the_same_for_every_gamma(draft: str, gamma: int | str) -> None:
    said = heard(recogniser(of("shown"), draft, gamma), with_pauses(), **SHOWN)
    assert said.ids == reference("shown")


@pytest.mark.parametrize("samples", [music(), nearly_silent()], ids=["music", "silence"])
@pytest.mark.parametrize("draft", ["ngram", "same-weights"])
@pytest.mark.parametrize("name", ["plain", "shown", "skips"])
def test_what_is_no_speech_is_heard_alike(samples: np.ndarray, draft: str, name: str) -> None:
    asked = SCENARIOS[name][1]
    said = heard(recogniser(five, draft), samples, **asked)
    assert said.ids == expected(five(), samples, **asked)


@pytest.mark.parametrize("draft", ["none", "same-weights"])
@pytest.mark.parametrize("seconds", [0.1, 0.99, 1.0, 1.00001, 1.01, 1.99, 2.0, 2.01])
def test_lengths_around_a_window(seconds: float, draft: str) -> None:
    samples = speech(seconds=3)[: round(seconds * RATE)]
    said = heard(recogniser(five, draft), samples)
    assert said.ids == expected(five(), samples)
    assert said.ids
    assert said.segments[-1].end_s <= seconds + 1e-9


def test_times_are_on_beyond_a_window_and_cannot_be_off() -> None:
    whole = recogniser(five)
    assert heard(whole, with_pauses()[: RATE + 160]).segments[-1].start_s > 0
    off = heard(whole, with_pauses()[:RATE]).ids
    assert off == heard(whole, with_pauses()[:RATE], timestamps=False).ids
    with pytest.raises(InputError, match=r"longer than the 1 s .* leave timestamps on") as error:
        whole.transcribe(with_pauses(), sampling_rate=RATE, timestamps=False)
    assert "\n" not in str(error.value)
    timeless = functools.partial(tiny, 5, says={"no_timestamps_token_id": None})
    with pytest.raises(OptionError, match="generation config names none"):
        recogniser(timeless).transcribe(with_pauses(), sampling_rate=RATE)


def test_segments_have_times_of_the_recording() -> None:
    said = heard(recogniser(five), with_pauses())
    starts = [segment.start_s for segment in said.segments]
    assert starts == sorted(starts)
    assert starts[-1] > LONG_S - 1.1
    assert all(part.start_s <= part.end_s <= LONG_S for part in said.segments)
    assert tuple(token for part in said.segments for token in part.ids) == said.ids


def test_what_a_config_says_holds() -> None:
    """As in transformers: a config's wish to show the text before takes effect behind window 1."""
    for name in ("shown", "prompt-shown", "loops"):
        wishes = dict(SCENARIOS[name][1])
        asked = {key: wishes.pop(key) for key in ("prompt", "temperature") if key in wishes}
        model = tiny(5, says=wishes)
        assert heard(recogniser(lambda m=model: m), with_pauses(), **asked).ids == expected(
            model, with_pauses(), **asked
        )


@pytest.mark.parametrize(
    "says",
    [
        {"forced_decoder_ids": [[1, DE], [2, TRANSLATE]]},
        {"lang_to_id": {"<|de|>": DE}},
        {"task_to_id": {"transcribe": TRANSLATE}, "language": "en"},
        {"decoder_start_token_id": 12},
        {"no_timestamps_token_id": 60},
        {"is_multilingual": False},
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["a config", "its options"])
def test_the_marks_are_those_that_a_requests_config_names(
    says: dict[str, Any], whole: bool
) -> None:
    config = copy.deepcopy(five().generation_config)
    config.update(**says, allow_custom_entries=True)
    asked = {"generation_config": config} if whole else says
    model = tiny(5, says={"forced_decoder_ids": [[1, None], [2, TRANSCRIBE]]})
    said = heard(recogniser(lambda: model, "ngram"), with_pauses(), **asked)
    assert said.ids == expected(model, with_pauses(), **asked)


class TestShortAudio:
    """The same options on a recording of one window."""

    @pytest.mark.parametrize("timestamps", [False, True])
    @pytest.mark.parametrize("name", ["shown", "prompt-shown", "skips", "loops", "all-thresholds"])
    def test_the_ids_are_transformers_own(self, name: str, timestamps: bool) -> None:
        asked = SCENARIOS[name][1]
        for seed in (4, 5):
            want = expected(shared(seed), speech(), return_timestamps=timestamps, **asked)
            whole = recogniser(functools.partial(shared, seed), "ngram")
            assert heard(whole, speech(), timestamps=timestamps, **asked).ids == want


class TestFallback:
    """Sampled ids can't be compared with transformers'; they follow the seed and nothing else."""

    ASKED: dict[str, Any] = {  # noqa: RUF012
        "temperature": (0.0, 0.3, 0.8),
        "logprob_threshold": -0.6,
        "compression_ratio_threshold": 0.9,
        "max_new_tokens": 12,
        **SHOWN,
    }

    def ids(self, draft: str, seed: int, gamma: int | str = 3) -> tuple[int, ...]:
        said = heard(recogniser(five, draft, gamma), with_pauses(), seed=seed, **self.ASKED)
        assert said.report.parity == "L1"
        return said.ids

    def test_the_ids_are_the_same_for_every_drafter_and_follow_the_seed(self) -> None:
        want = self.ids("none", 1, 0)
        for draft in OTHERS:
            assert self.ids(draft, 1) == want
        assert self.ids("none", 2) != want

    def test_transformers_decides_alike_over_the_same_noise(self) -> None:
        """Its own fallback around our loop draws what `transcribe` draws."""
        features = processor()(
            with_pauses(),
            sampling_rate=RATE,
            return_tensors="pt",
            truncation=False,
            padding="longest",
        )
        with quiet():
            made = mmspec.generate(
                five(), features, "ngram", gamma=3, seed=1, return_timestamps=True, **self.ASKED
            )
        assert tuple(made.sequences[0].tolist()) == self.ids("none", 1)

    def test_every_try_draws_noise_of_its_own(self) -> None:
        never = {"logprob_threshold": 0.0, "max_new_tokens": 12}
        one = heard(recogniser(five), speech(), seed=4, temperature=(1.0,), **never)
        two = heard(recogniser(five), speech(), seed=4, temperature=(1.0, 1.0), **never)
        assert one.ids != two.ids

    @pytest.mark.parametrize("draft", ["none", "other-seed", "other-ears"])
    def test_a_window_is_encoded_once(self, draft: str) -> None:
        asked = {"temperature": (0.0, 0.0, 0.0), "logprob_threshold": 0.0}
        once = heard(recogniser(five, draft), with_pauses())
        thrice = heard(recogniser(five, draft), with_pauses(), **asked, no_speech_threshold=1.0)
        assert thrice.ids == once.ids
        assert thrice.report.encoder_runs == once.report.encoder_runs
        assert thrice.report.drafter_encoder_runs == once.report.drafter_encoder_runs
        assert thrice.report.rounds > 2 * once.report.rounds

    def test_a_greedy_run_with_thresholds_is_l0_where_none_was_missed(self) -> None:
        easy = {"temperature": (0.0, 0.5), "logprob_threshold": -99.0}
        assert heard(recogniser(five), speech(), **easy).report.parity == "L0"

    def test_the_verdicts(self) -> None:
        rules = Fallback((0.0, 0.5), compression_ratio=2.0, logprob=-1.0, no_speech=0.6)
        loop, fine = [7] * 40, [1, 2, 3]
        assert rules.judge(fine, -0.5, 0.9, 100) is Verdict.KEEP
        assert rules.judge(fine, -1.5, 0.5, 100) is Verdict.AGAIN
        assert rules.judge(loop, -0.5, 0.9, 100) is Verdict.AGAIN
        assert rules.judge(loop, -1.5, 0.9, 100) is Verdict.SILENCE
        alone = Fallback((0.0,), no_speech=0.6)
        assert alone.judge(fine, 0.0, 0.7, 100) is Verdict.SILENCE
        assert alone.judge(fine, 0.0, 0.6, 100) is Verdict.KEEP

    def test_criteria_see_every_row(self) -> None:
        class Rows:
            seen: list[int] = []  # noqa: RUF012

            def __call__(self, ids: Any, scores: Any, **_: Any) -> torch.Tensor:
                self.seen.append(len(scores))
                return torch.tensor([len(self.seen) > 11])

        heard(recogniser(five), speech(), logprob_threshold=-9.0, stopping_criteria=[Rows()])
        assert Rows.seen[:12] == list(range(1, 13))


class TestStreaming:
    @pytest.mark.parametrize("draft", ["none", "same-weights"])
    @pytest.mark.parametrize("name", ["plain", "shown", "skips", "loops"])
    def test_nothing_is_taken_back(self, name: str, draft: str) -> None:
        asked = SCENARIOS[name][1]
        assert tuple(recognition(recogniser(of(name), draft), **asked)) == reference(name)

    def test_a_window_that_may_be_decoded_again_waits(self) -> None:
        """What a rejected try said is never heard of."""
        asked = {"temperature": (0.0, 0.9), "logprob_threshold": 0.0, "seed": 3}
        run = recognition(recogniser(five), **asked)
        assert tuple(run) == run.heard().ids

    def test_certainty_with_and_without_hold(self) -> None:
        said: list[int] = []
        steps = recogniser(five).descriptor
        for holds in (False, True):
            said.clear()
            certainty = StableTokens(steps, frozenset({EOS}), said.append, holds)
            certainty.add([FIRST_TIME, 4, FIRST_TIME + 3, FIRST_TIME + 3, 9, EOS])
            assert said == ([] if holds else certainty.ids[:4])
            assert certainty.emitted[-1] == EOS
            certainty.settle(4)
            assert said == certainty.ids[:4]

    def test_a_streamer_gets_the_transcript_and_no_more(self) -> None:
        class Collecting:
            ids: list[int] = []  # noqa: RUF012
            prompts, ends, expects_prompt = 0, 0, True

            def put(self, value: torch.Tensor) -> None:
                if self.expects_prompt:
                    self.prompts += 1
                else:
                    self.ids += [token for token in value.flatten().tolist() if token != EOS]
                self.expects_prompt = False

            def end(self) -> None:
                self.ends, self.expects_prompt = self.ends + 1, True

        streamer = Collecting()
        said = heard(recogniser(five, "ngram"), with_pauses(), streamer=streamer)
        assert tuple(streamer.ids) == said.ids
        assert streamer.prompts == streamer.ends == said.report.encoder_runs


class TestHypothesis:
    """One hypothesis of the whole recording serves all of its windows."""

    @pytest.mark.parametrize("shown", [False, True])
    @pytest.mark.parametrize("change", [list, with_errors, lambda ids: ids[30:], lambda ids: []])
    def test_the_ids_are_the_same_whatever_is_expected(
        self, shown: bool, change: Callable[[Sequence[int]], list[int]]
    ) -> None:
        name = "shown" if shown else "plain"
        for timed in (False, True):
            tokens = [u for u in reference(name) if timed or u < FIRST_TIME]
            said = heard(
                recogniser(of(name), "hypothesis"),
                with_pauses(),
                hypothesis=change(tokens),
                **SCENARIOS[name][1],
            )
            assert said.ids == reference(name)

    @pytest.mark.parametrize("timed", [False, True])
    def test_a_right_one_is_used_in_every_window(self, timed: bool) -> None:
        clips = [load_audio(clip) for clip in sorted(sample_path("audio").glob("*.flac"))[:4]]
        samples = np.concatenate(clips)
        first = heard(mmspec.load("sample", device="cpu"), samples, language="en")
        assert first.report.encoder_runs > 2
        with mmspec.load("sample", "hypothesis", gamma=12, device="cpu") as whole:
            expects = first.ids if timed else first.text
            said = heard(whole, samples, language="en", hypothesis=expects)
        assert said.ids == first.ids
        assert said.report.rounds < first.report.rounds / 3
        quarter = len(said.ids) // 4
        for start in range(0, 3 * quarter + 1, quarter):
            kinds = [origin.kind for origin in said.origins[start : start + quarter]]
            assert kinds.count("accepted") > 0.6 * quarter

    def test_the_place_is_kept_through_what_is_missing_or_too_much(self) -> None:
        steps = recogniser(five).descriptor
        text = [token % 40 for token in range(0, 7 * 300, 7)]
        told = HypothesisCursor([*text[:100], *[44] * 3 * NEAR, *text[100:]], steps)
        assert told.ahead(timestamps=True) == [FIRST_TIME, *text[:CONTEXT]]
        told.consume([FIRST_TIME, *text[:50], FIRST_TIME + 9])
        assert told.ahead(timestamps=False) == text[50 : 50 + CONTEXT]
        told.consume([*text[50:60], 48, 48, *text[62:100]])  # two others
        told.consume([48] * 30)  # what nobody expected
        assert told.ahead(timestamps=False) == [44] * CONTEXT
        told.consume(text[100 : 100 + FAR_RUN])  # behind a long stretch of something else
        assert told.ahead(timestamps=False) == text[100 + FAR_RUN :][:CONTEXT]

    def test_times_of_expected_ids_count(self) -> None:
        steps = recogniser(five).descriptor
        ids = [FIRST_TIME, 4, 5, FIRST_TIME + 7, FIRST_TIME + 7, FIRST_TIME, 6, FIRST_TIME + 4]
        told = HypothesisCursor(ids, steps)
        told.consume(ids[:5])
        assert told.ahead(timestamps=True) == ids[5:]

    def test_ids_outside_the_vocabulary_are_refused(self) -> None:
        with pytest.raises(InputError, match="id 999 is outside the vocabulary of 108"):
            recogniser(five, "hypothesis").transcribe(
                with_pauses(), sampling_rate=RATE, hypothesis=[4, 999]
            )


class TestFeatures:
    @pytest.mark.parametrize("seconds", [1.0, 1.5, 2.0, 2.9999, 4.37])
    def test_pieces_make_the_same_features(
        self, seconds: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        samples, extractor = speech(seconds=seconds), processor().feature_extractor
        whole = whisper_features.log_mel(extractor, samples, 0.5)
        monkeypatch.setattr(whisper_features, "PIECE_S", 1)
        in_pieces = whisper_features.log_mel(extractor, samples, 0.5)
        torch.testing.assert_close(in_pieces, whole, rtol=0, atol=2e-6)
        made = extractor(
            samples, sampling_rate=RATE, truncation=False, padding="longest", return_tensors="pt"
        )
        assert torch.equal(whole, made.input_features)

    def test_a_window_behind_the_end_is_padded(self) -> None:
        features = torch.ones(1, 2, 7)
        assert whisper_features.window_of(features, 5, 4).tolist() == [[[1, 1, 0, 0]] * 2]
        assert whisper_features.window_of(features, 1, 4).shape == (1, 2, 4)

    def test_each_checkpoint_makes_them_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[int] = []
        features = Whisper.features

        def counted(self: Whisper, samples: np.ndarray) -> torch.Tensor:
            made.append(self.model.config.num_mel_bins)
            return features(self, samples)

        monkeypatch.setattr(Whisper, "features", counted)
        said = heard(recogniser(five, "other-ears"), with_pauses())
        assert said.report.drafter_encoder_runs > 2
        assert sorted(made) == [8, 12]


class TestSecondLook:
    def test_it_sees_every_window_while_its_decoder_is_open(self) -> None:
        seen: list[tuple[Any, ...]] = []

        def look(
            target: Any,
            prompt: Sequence[int],
            states: torch.Tensor,
            ids: Sequence[int],
            seek_s: float,
            frames: int,
        ) -> Steps[None]:
            target.state.commit(len(prompt))
            rows = yield Pass(target, ids, len(ids), None, run.clock, "post")
            seen.append((tuple(ids), seek_s, frames, len(rows), tuple(states.shape)))

        run = recognition(recogniser(five, "early-exit:1"), second_look=look, **SHOWN)
        said = run.run()
        assert said.ids == reference("shown")
        assert tuple(token for window in seen for token in window[0]) == said.ids
        assert len(seen) == said.report.encoder_runs
        assert [window[1] for window in seen] == sorted({window[1] for window in seen})
        assert all(window[2] == 100 for window in seen if window[1] < LONG_S - 1)
        assert seen[-1][2] == round(100 * (LONG_S - seen[-1][1]))
        assert all(window[3] == len(window[0]) for window in seen)
        assert seen[0][4] == (1, 50, 16)

    def test_a_plain_callable_will_do(self) -> None:
        seen: list[int] = []
        run = recognition(recogniser(five), second_look=lambda *window: seen.append(window[5]))
        assert tuple(run) == reference("plain")
        assert len(seen) == run.heard().report.encoder_runs


@pytest.mark.parametrize("shown", [None, True])
def test_transformers_as_a_peer_on_a_long_recording(shown: bool | None) -> None:
    request = TranscriptionRequest(
        language="en", condition_on_prev_tokens=shown, logprob_threshold=-0.9
    )
    ours = recogniser(five, "ngram")
    outcome = MMSpecPeer(ours, "ours").run(with_pauses(), request)
    found = Comparer(ours, ["plain", "hf"]).compare(with_pauses(), request, outcome)
    for peer in found.values():
        assert peer.ids_equal, peer


def test_a_peer_is_compared_as_long_as_nothing_was_sampled() -> None:
    ours = recogniser(five, "ngram")
    for threshold, available in ((-99.0, True), (0.0, False)):
        request = TranscriptionRequest(temperature=(0.0, 0.8), logprob_threshold=threshold, seed=1)
        outcome = MMSpecPeer(ours, "ours").run(with_pauses(), request)
        found = Comparer(ours, ["plain", "hf"]).compare(with_pauses(), request, outcome)
        assert found["plain"].ids_equal
        assert found["hf"].available is available
        assert found["hf"].ids_equal is (True if available else None)
