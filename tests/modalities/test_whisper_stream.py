"""A stream: every decode is `generate`'s, committed text stays, no audio is lost or kept too long.

The tiny model hears one second at a time and writes nonsense; that makes it a hard case for
agreement, and cheap.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import mmspec
from mmspec.engine import run_alone
from mmspec.errors import InputError, OptionError
from mmspec.modalities.media.audio import load_audio
from mmspec.modalities.media.audio_buffer import AudioBuffer
from mmspec.modalities.whisper.decode import Recognition
from mmspec.modalities.whisper.local_agreement import HeardWord, LocalAgreement
from mmspec.modalities.whisper.no_speech import no_speech_token, with_no_speech_row
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.modalities.whisper.stream import GRID
from mmspec.modalities.whisper.stream_record import Decode, Spoken, Update, joined
from tests.modalities.tiny import EOS, START, shared, speech, tiny, tiny_processor

RATE = 16_000


def recogniser(draft: Any = "hypothesis", seed: int = 1, **options: Any) -> mmspec.Transcriber:
    return mmspec.load(shared(seed), draft, processor=tiny_processor(), **options)


def cut(audio: np.ndarray, seconds: float) -> list[np.ndarray]:
    size = max(1, round(seconds * RATE))
    return [audio[start : start + size] for start in range(0, len(audio), size)]


def heard(chunks: Iterable[np.ndarray], seed: int = 1, **options: Any) -> list[Update]:
    options = {"step_s": 0.2, "language": "en"} | options
    loading = {name: options.pop(name) for name in ("draft", "gamma") if name in options}
    return list(recogniser(seed=seed, **loading).live(**options).run(chunks))


def decodes_of(updates: Sequence[Update]) -> list[Decode]:
    return [decode for update in updates for decode in update.decodes]


def generated(audio: np.ndarray, decode: Decode, seed: int = 1, **asked: Any) -> tuple[int, ...]:
    """What transformers makes of a buffer."""
    processor = tiny_processor()
    buffer = audio[round(decode.start_s * RATE) : round(decode.end_s * RATE)]
    if decode.previous is not None:
        asked["prompt_ids"] = processor.get_prompt_ids(decode.previous, return_tensors="pt")
    features = processor(buffer, sampling_rate=RATE, return_tensors="pt").input_features
    asked = {"language": "en", "return_timestamps": True} | asked
    ids = shared(seed).generate(features, **asked)[0].tolist()
    return tuple(token for token in ids if token != EOS)


def check_distributions(updates: Sequence[Update], audio: np.ndarray, **asked: Any) -> None:
    """What holds of every stream of the tiny model."""
    committed, heard_until = "", 0.0
    for update in updates:
        assert update.committed == committed + update.new
        assert update.new == "".join(part.text for part in update.spoken).lstrip() or committed
        committed = update.committed
        for decode in update.decodes:
            assert 0 < round(decode.duration_s * RATE) <= RATE
            assert round(decode.start_s * RATE) % GRID == 0
            assert decode.start_s <= heard_until
            assert not decode.report.faults
            assert decode.ids == generated(audio, decode, **asked)
            heard_until = max(heard_until, decode.end_s)
    assert [update.final for update in updates] == [False] * (len(updates) - 1) + [True]
    assert updates[-1].tentative == ""
    assert heard_until == pytest.approx(len(audio) / RATE)


class TestChunks:
    @pytest.mark.parametrize(("seed", "chunk_s"), [(1, 0.01), (2, 0.13), (3, 0.2), (1, 5.0)])
    def test_every_decode_is_generates_and_nothing_is_taken_back(
        self, seed: int, chunk_s: float
    ) -> None:
        audio = speech(seed=seed, seconds=2.3)
        check_distributions(heard(cut(audio, chunk_s), seed), audio, seed=seed)

    def test_a_sample_at_a_time_is_the_same_as_ten_milliseconds(self) -> None:
        audio = speech(seconds=0.5)
        one, other = heard(cut(audio, 1 / RATE)), heard(cut(audio, 0.01))
        assert [d.ids for d in decodes_of(one)] == [d.ids for d in decodes_of(other)]
        assert [update.committed for update in one] == [update.committed for update in other]

    @pytest.mark.parametrize("seconds", [1 / RATE, 0.1, 1.0, 2.3])
    def test_short_streams_whole_windows_and_several(self, seconds: float) -> None:
        audio = speech(seconds=2.3)[: round(seconds * RATE)]
        check_distributions(heard(cut(audio, 0.2)), audio)

    def test_a_stream_without_audio(self) -> None:
        for chunks in ([], [np.zeros(0)]):
            (update,) = heard(chunks)
            assert (update.committed, update.decode, update.final) == ("", None, True)

    def test_what_has_piled_up_is_decoded_at_once(self) -> None:
        audio = speech(seconds=0.9)
        session = recogniser().live(step_s=0.1, language="en")
        (update,) = session.feed(audio)
        assert update.decode is not None
        assert update.decode.end_s == pytest.approx(0.9)

    @pytest.mark.parametrize("kind", [torch.tensor, np.asarray, lambda a: np.stack([a, a])])
    def test_kinds_of_samples(self, kind: Any) -> None:
        audio = speech(seconds=0.5)
        want = heard(cut(audio, 0.2))[-1]
        assert heard([kind(chunk) for chunk in cut(audio, 0.2)])[-1].committed == want.committed

    @pytest.mark.parametrize("level", [0.0, 0.3])
    def test_silence_and_noise(self, level: float) -> None:
        noise = np.random.default_rng(3).standard_normal(round(2.5 * RATE))
        audio = (level * noise[: round(1.3 * RATE)]).astype(np.float32)
        check_distributions(heard(cut(audio, 0.2)), audio)


class TestDrafting:
    @pytest.mark.parametrize(
        ("draft", "gamma"),
        [("none", 3), ("ngram", 3), ("early-exit:1", 3), (shared(2), "adaptive")],
    )
    def test_it_decides_how_fast_and_never_what(self, draft: Any, gamma: Any) -> None:
        audio = speech(seconds=1.4)
        plain = heard(cut(audio, 0.2), gamma=0)
        drafted = heard(cut(audio, 0.2), draft=draft, gamma=gamma)
        assert [update.committed for update in drafted] == [one.committed for one in plain]
        assert [update.tentative for update in drafted] == [one.tentative for one in plain]

    def test_the_hypothesis_is_what_was_heard_last(self) -> None:
        updates = heard(cut(speech(seconds=0.9), 0.3), step_s=0.3)
        for before, after in itertools.pairwise(decodes_of(updates)):
            text = [token for token in before.ids if token < EOS]
            assert [token for token in after.hypothesis if token < EOS] == text
            assert after.hypothesis[-1] == EOS


class TestTrimming:
    def test_without_times_a_full_window_is_cut_where_it_is_quietest(self) -> None:
        audio = speech(seconds=2.6)
        audio[14_400:14_800] = 0
        updates = heard(cut(audio, 0.25), timestamps=False, step_s=0.25)
        check_distributions(updates, audio, return_timestamps=False)
        starts = [round(decode.start_s * RATE) for decode in decodes_of(updates)]
        first = next(start for start in starts if start)
        assert 14_400 - 2 * GRID <= first <= 14_800

    @pytest.mark.parametrize("trim_s", [0.3, 1.0])
    def test_when_the_buffer_is_cut_is_an_option(self, trim_s: float) -> None:
        audio = speech(seconds=2.2)
        check_distributions(heard(cut(audio, 0.3), trim_s=trim_s, step_s=0.3), audio)

    def test_committed_text_before_the_buffer_is_the_prompt(self) -> None:
        audio = speech(seconds=2.1)
        updates = heard(cut(audio, 0.3), prompt="th in", step_s=0.3)
        decodes = decodes_of(updates)
        assert decodes[0].previous == "th in"
        assert any(decode.previous not in (None, "th in") for decode in decodes)
        off = heard(cut(audio, 0.3), prompt="th in", step_s=0.3, condition_on_committed=False)
        assert {decode.previous for decode in decodes_of(off)} == {"th in"}
        check_distributions(updates, audio)


class TestResampling:
    @pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
    @pytest.mark.parametrize("chunk", [1, 441, 30_000])
    def test_chunks_are_resampled_like_the_whole(self, rate: int, chunk: int) -> None:
        whole = np.sin(np.arange(rate // 4) * 2 * np.pi * 440 / rate).astype(np.float32)
        audio = AudioBuffer()
        for start in range(0, len(whole), chunk):
            audio.add(whole[start : start + chunk], rate)
        audio.finish()
        want = load_audio(whole, rate)
        got = audio.between(0, audio.end)
        assert abs(len(got) - len(want)) <= 1
        shorter = min(len(got), len(want))
        np.testing.assert_allclose(got[:shorter], want[:shorter], atol=2e-3)

    @pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
    def test_a_stream_at_another_rate(self, rate: int) -> None:
        source = np.random.default_rng(1).standard_normal(rate * 2 // 3).astype(np.float32) / 5
        chunks = np.array_split(source, 9)
        audio = AudioBuffer()
        for piece in chunks:
            audio.add(piece, rate)
        audio.finish()
        session = recogniser().live(step_s=0.2, language="en")
        check_distributions(list(session.run(chunks, rate)), audio.between(0, audio.end))


class TestFaults:
    def test_a_chunk_that_cant_be_used_costs_nothing(self) -> None:
        audio, spoilt = speech(seconds=0.8), np.array([0.1, np.nan])
        want = heard(cut(audio, 0.2))
        session = recogniser().live(step_s=0.2, language="en")
        got = []
        for chunk in cut(audio, 0.2):
            with pytest.raises(InputError, match="1 NaN or infinite sample, the first at index 1"):
                session.feed(spoilt)
            with pytest.raises(InputError, match="found list, expected"):
                session.feed([0.0])
            got += session.feed(chunk)
            with pytest.raises(
                InputError, match="found a sampling rate of 8000 Hz, expected 16000"
            ):
                session.feed(chunk, 8_000)
        assert [*got, session.finish()][-1].committed == want[-1].committed

    def test_an_end_that_failed_is_an_end_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        audio = speech(seconds=0.5)
        want = heard([audio], step_s=9)[-1]
        session = recogniser().live(step_s=9, language="en")
        session.feed(audio)
        with monkeypatch.context() as patch:
            patch.setattr(
                "mmspec.modalities.whisper.checkpoint.Whisper.encode_layers", lambda *_: 1 / 0
            )
            with pytest.raises(ZeroDivisionError):
                session.finish()
        with pytest.raises(InputError, match="found audio behind the stream's end"):
            session.feed(audio)
        assert session.finish().committed == want.committed

    @pytest.mark.parametrize("rate", [0, -5, 1.5, True, "fast"])
    def test_a_rate_that_is_none(self, rate: Any) -> None:
        with pytest.raises(InputError, match="expected a whole number of Hz above 0"):
            recogniser().live().feed(np.zeros(10), rate)

    def test_a_stream_that_is_over_says_so(self) -> None:
        session = recogniser().live(step_s=0.2)
        session.finish()
        for use in (session.finish, lambda: session.feed(np.zeros(10))):
            with pytest.raises(OptionError, match="this stream is finished: start a new one"):
                use()
        session = recogniser().live()
        session.close()
        with pytest.raises(OptionError, match="this stream is closed"):
            session.feed(np.zeros(10))

    def test_a_stream_left_early_lets_go_of_its_audio(self) -> None:
        session = recogniser().live(step_s=0.2)
        updates = session.run(cut(speech(seconds=2.0), 0.3))
        next(updates)
        updates.close()  # type: ignore[attr-defined]
        with pytest.raises(OptionError, match="closed"):
            session.feed(np.zeros(10))
        assert session.totals.decodes == 1

    def test_a_decode_that_fails_can_be_had_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        audio = speech(seconds=0.8)
        want = heard(cut(audio, 0.2))
        session = recogniser().live(step_s=0.2, language="en")
        chunks = cut(audio, 0.2)
        session.feed(chunks[0])
        with monkeypatch.context() as patch:
            patch.setattr(
                "mmspec.modalities.whisper.checkpoint.Whisper.encode_layers", lambda *_: 1 / 0
            )
            with pytest.raises(ZeroDivisionError):
                session.feed(chunks[1])
        for chunk in chunks[2:]:
            session.feed(chunk)
        got = session.finish()
        assert got.heard_s == want[-1].heard_s
        assert got.committed == session.text

    @pytest.mark.parametrize(
        ("option", "words"),
        [
            ({"step_s": 0.0}, "step_s: found 0.0"),
            ({"step_s": float("nan")}, "step_s: found nan"),
            ({"trim_s": 1.5}, "trim_s: found 1.5, expected seconds above 0, up to one window"),
            ({"hypothesis": "x"}, "hypothesis: a stream has its own"),
            ({"streamer": None}, "streamer: a stream has its own"),
        ],
    )
    def test_options_that_cant_be_meant(self, option: dict[str, Any], words: str) -> None:
        with pytest.raises(OptionError, match=words):
            recogniser().live(**option)

    def test_a_closed_recogniser_and_one_without_processor(self) -> None:
        closed = recogniser()
        closed.close()
        with pytest.raises(OptionError, match="this transcriber is closed"):
            closed.live()
        with pytest.raises(OptionError, match="give its processor= too"):
            mmspec.load(shared()).live()


class TestTotals:
    def test_they_are_those_of_the_decodes(self) -> None:
        audio = speech(seconds=2.3)
        session = recogniser().live(step_s=0.2, language="en")
        decodes = decodes_of(list(session.run(cut(audio, 0.2))))
        totals, report = session.totals, session.totals.report
        assert report is not None
        assert totals.decodes == len(decodes)
        assert totals.audio_s == pytest.approx(len(audio) / RATE)
        assert totals.encoded_s == pytest.approx(sum(one.duration_s for one in decodes))
        assert report.tokens == sum(one.report.tokens for one in decodes)
        assert totals.mean_acceptance_length == report.tokens / report.rounds
        assert totals.encode_seconds == pytest.approx(
            sum(one.report.seconds["encode"] for one in decodes)
        )
        count = np.zeros(len(audio), int)
        for one in decodes:
            count[round(one.start_s * RATE) : round(one.end_s * RATE)] += 1
        assert totals.encoded_again_share == pytest.approx((count > 1).mean(), abs=1e-6)
        assert totals.encoded_times == pytest.approx(count.mean())
        assert report.finish_reason.count("stop") <= 1
        assert set(totals.to_dict()) >= {"encoded_again_share", "mean_acceptance_length"}

    def test_segments_are_in_order_and_hold_the_text(self) -> None:
        session = recogniser().live(step_s=0.2, language="en")
        list(session.run(cut(speech(seconds=3.1), 0.2)))
        times = [time for part in session.segments for time in (part.start_s, part.end_s)]
        assert times == sorted(times)  # type: ignore[type-var]
        text = "".join(part.text for part in session.segments)
        assert text.replace(" ", "") == session.text.replace(" ", "")


class TestNoSpeech:
    @pytest.mark.parametrize("language", ["en", None])
    def test_its_probability_is_the_models(self, language: str | None) -> None:
        whole, samples, noted = recogniser("none"), speech(seconds=0.5), list[float]()
        features = whole.processor(samples, sampling_rate=RATE, return_tensors="pt").input_features
        asked = TranscriptionRequest(language=language, prompt="th")
        recognition = Recognition(whole._pair, lambda heard: heard.features(samples), asked, 0.5)
        run_alone(with_no_speech_row(recognition.steps(), START, 7, noted))
        previous = whole.processor.get_prompt_ids("th").tolist()
        before = [] if language is None else previous
        with torch.no_grad():
            ids = torch.tensor([[*before, START]])
            row = whole.model(input_features=features, decoder_input_ids=ids).logits[0, -1]
        assert noted[0] == pytest.approx(float(row.softmax(-1)[7]), rel=1e-4)
        assert (
            recognition.heard().ids
            == whole.transcribe(samples, sampling_rate=RATE, language=language, prompt="th").ids
        )

    def test_a_tokenizer_without_the_mark(self) -> None:
        assert no_speech_token(recogniser().checkpoint) is None

    def test_where_nobody_speaks_no_text_comes_and_no_audio_is_kept(self) -> None:
        audio = np.random.default_rng(0).standard_normal(RATE * 11).astype(np.float32) / 10
        with mmspec.load("sample") as sample:
            session = sample.live(step_s=2.0, no_speech_threshold=0.0)
            updates = list(session.run(cut(audio, 2.0)))
            assert session.text == ""
            assert max(decode.duration_s for decode in decodes_of(updates)) <= 6
            assert all(decode.no_speech is not None for decode in decodes_of(updates))


class TestAgreement:
    """Whatever is heard: committed words stay, in order, and come from hypotheses."""

    @pytest.mark.parametrize("seed", range(60))
    def test_nothing_is_taken_back(self, seed: int) -> None:
        chance = random.Random(seed)
        agreement, committed = LocalAgreement(), list[HeardWord]()
        truth = [HeardWord(f" w{chance.randrange(9)}", (n,)) for n in range(60)]
        begin, end = 0, 3
        for _ in range(25):
            words = [
                HeardWord(" noise", ()) if chance.random() < 0.1 else word
                for word in truth[begin:end]
                if chance.random() > 0.05
            ]
            committed += agreement.hear(words)
            if chance.random() < 0.1:
                committed += agreement.force(chance.choice([None, 1, 2]))
            if chance.random() < 0.3:
                count = chance.randrange(agreement.settled + 1)
                agreement.leave_behind(count)
                begin += count
            end += chance.randrange(4)
            assert agreement._committed == committed
            assert len(agreement.behind) <= len(committed)
            assert list(agreement.behind) == committed[: len(agreement.behind)]

    def test_two_in_a_row_have_to_agree_on_whole_words(self) -> None:
        def words(text: str) -> list[HeardWord]:
            return [HeardWord(f" {word}", ()) for word in text.split()]

        agreement = LocalAgreement()
        heard = ["unless to be rat.", "unless to be rather", "unless to be rather cold"]
        new = ["".join(word.text for word in agreement.hear(words(text))) for text in heard]
        assert new == ["", " unless to be", " rather"]
        assert agreement.hear(words("something else")) == []
        assert [word.text for word in agreement.force()] == []


def test_stretches_become_segments_with_times_that_dont_run_backwards() -> None:
    pieces = [
        Spoken("a", None, None, (1,)),
        Spoken(" b", 3.0, 2.0, (2,)),
        Spoken(" c", 1.0, None, (3,)),
    ]
    parts = joined(pieces, 5.0)
    assert [(part.text, part.start_s, part.end_s) for part in parts] == [
        ("a", 0.0, 3.0),
        ("b", 3.0, 3.0),
        ("c", 3.0, 5.0),
    ]


def test_a_stream_of_its_own_loads_the_model() -> None:
    audio = speech(seconds=0.6)
    session = mmspec.stream(tiny(1), processor=tiny_processor(), gamma=3, step_s=0.2, language="en")
    assert list(session.run(cut(audio, 0.2)))[-1].committed == heard(cut(audio, 0.2))[-1].committed
