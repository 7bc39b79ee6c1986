"""Chunks: each one's ids are transformers' own, whatever drafts; nothing is lost between them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mmspec
from mmspec.errors import OptionError
from mmspec.factorizations import Segment, WhisperSteps
from mmspec.modalities.whisper.chunks import Chunking, expected_head
from mmspec.modalities.whisper.merge import Piece
from tests.modalities.test_whisper_parity import Counting
from tests.modalities.tiny import FIRST_TIME, NO_TIMES, saved, speech, tiny, tiny_processor
from tests.test_generation import Collecting, one_line

RATE = 16_000
CHUNK: dict[str, Any] = {"chunk_s": 0.6, "overlap_s": 0.2}

Loaded = Callable[..., mmspec.Transcriber]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """A transcriber by drafter and γ, made once."""
    root = tmp_path_factory.mktemp("chunks")
    target, other = (str(saved(root / str(seed), tiny(seed))) for seed in (5, 11))

    @functools.cache
    def load(draft: str = "none", gamma: int | str = "adaptive") -> mmspec.Transcriber:
        return mmspec.load(target, other if draft == "other" else draft, gamma=gamma)

    return load


KNOWN: dict[tuple[Any, ...], list[int]] = {}


def generated(model: Any, samples: Any, chunk: Any, **options: Any) -> list[int]:
    """What transformers says of a chunk (all models here have the same weights)."""
    part = samples[round(chunk.start_s * RATE) : round(chunk.end_s * RATE)]
    key = (part.tobytes(), *((name, str(value)) for name, value in options.items()))
    if key not in KNOWN:
        features = tiny_processor()(part, sampling_rate=RATE, return_tensors="pt").input_features
        KNOWN[key] = model.generate(features, **options)[0].tolist()
    return KNOWN[key]


class TestParity:
    @pytest.mark.parametrize("timestamps", [False, True])
    @pytest.mark.parametrize("gamma", ["adaptive", 4])
    @pytest.mark.parametrize("draft", ["none", "overlap", "ngram", "early-exit:1", "other"])
    def test_a_chunks_ids_are_transformers_own(
        self, draft: str, gamma: int | str, timestamps: bool, loaded: Loaded
    ) -> None:
        samples = speech(7, 2.1)
        whole = loaded(draft, gamma)
        said = whole.transcribe(
            samples, sampling_rate=RATE, language="en", timestamps=timestamps, **CHUNK
        )
        assert len(said.chunks) == 5
        for chunk in said.chunks:
            options = {"language": "en", "return_timestamps": timestamps}
            assert list(chunk.ids) == generated(whole.model, samples, chunk, **options)
        assert not said.report.faults

    @pytest.mark.parametrize("draft", ["none", "ngram", "early-exit:1"])
    @pytest.mark.parametrize("batch", [2, 9])
    def test_chunks_side_by_side_are_what_they_are_in_turn(
        self, draft: str, batch: int, loaded: Loaded
    ) -> None:
        whole, samples = loaded(draft, 3), speech(7, 2.1)
        asked: dict[str, Any] = {"sampling_rate": RATE, "language": "en", "timestamps": True}
        asked |= {"word_timestamps": True, "grounding": True, "temperature": 0.8, "seed": 3}
        in_turn = whole.transcribe(samples, **asked, **CHUNK)
        said = whole.transcribe(samples, batch=batch, **asked, **CHUNK)
        assert said.ids == in_turn.ids
        assert said.chunks == in_turn.chunks
        assert said.segments == in_turn.segments
        assert said.token_times == in_turn.token_times
        assert said.origins == in_turn.origins
        assert said.grounding is not None
        assert in_turn.grounding is not None
        assert said.grounding.drops == pytest.approx(in_turn.grounding.drops, abs=1e-3)

    @pytest.mark.parametrize("batch", [1, 4])
    def test_a_processors_memory_is_a_chunks_own(self, batch: int, loaded: Loaded) -> None:
        """Decoded in turn, side by side or alone, a chunk says the same."""
        whole, samples = loaded("ngram", 3), speech(7, 2.1)
        given = Counting()
        said = whole.transcribe(
            samples,
            sampling_rate=RATE,
            language="en",
            batch=batch,
            logits_processor=[given],
            **CHUNK,
        )
        assert given.counts == {}
        for chunk in said.chunks:
            options = {"language": "en", "logits_processor": [Counting()]}
            assert list(chunk.ids) == generated(whole.model, samples, chunk, **options)

    @pytest.mark.parametrize("draft", ["overlap", "hypothesis"])
    def test_chunks_that_draft_each_other_are_not_decoded_side_by_side(
        self, draft: str, loaded: Loaded
    ) -> None:
        more = {"hypothesis": "the bad end"} if draft == "hypothesis" else {}
        with pytest.raises(OptionError, match=f"batch 2: draft '{draft}'") as error:
            loaded(draft).transcribe(speech(7, 2.1), sampling_rate=RATE, batch=2, **more, **CHUNK)
        one_line(error.value)

    def test_a_batch_of_one_recordings_windows_is_refused(self, loaded: Loaded) -> None:
        with pytest.raises(OptionError, match="batch 2: a recording is decoded window") as error:
            loaded().transcribe(speech(7, 2.1), sampling_rate=RATE, batch=2)
        one_line(error.value)

    @pytest.mark.parametrize("draft", ["none", "overlap", "ngram"])
    def test_detected_languages_and_a_previous_text(self, draft: str, loaded: Loaded) -> None:
        samples = speech(7, 1.4)
        prompt = tiny_processor().get_prompt_ids("the bad end", return_tensors="pt")
        whole = loaded(draft, 3)
        said = whole.transcribe(samples, sampling_rate=RATE, prompt="the bad end", **CHUNK)
        for chunk in said.chunks:
            want = generated(whole.model, samples, chunk, prompt_ids=prompt)
            assert list(chunk.ids) == want

    def test_hypotheses_of_the_whole_recording(self, loaded: Loaded) -> None:
        samples = speech(7, 2.1)
        whole = loaded()
        plain = whole.transcribe(samples, sampling_rate=RATE, language="en", **CHUNK)
        for hypothesis in (plain.ids, plain.text, [5, 6, 7], ""):
            whole = loaded("hypothesis", 4)
            said = whole.transcribe(
                samples, sampling_rate=RATE, language="en", hypothesis=hypothesis, **CHUNK
            )
            assert [chunk.ids for chunk in said.chunks] == [chunk.ids for chunk in plain.chunks]
            assert said.ids == plain.ids
            if hypothesis == plain.ids:
                assert said.report.rounds < 0.7 * plain.report.rounds

    def test_seeded_sampling_is_the_same_for_every_drafter(self, loaded: Loaded) -> None:
        asked = {"sampling_rate": RATE, "language": "en", "temperature": 0.9, "seed": 3, **CHUNK}
        heard = []
        for draft in ("none", "overlap", "ngram"):
            whole = loaded(draft, 3)
            heard.append(whole.transcribe(np.tile(speech(7, 0.4), 4), **asked))
        assert len({tuple(chunk.ids for chunk in said.chunks) for said in heard}) == 1
        assert len({chunk.ids for chunk in heard[0].chunks[:-1]}) > 1, "noise of their own"

    def test_what_was_said_before_drafts_what_is_said_again(self, loaded: Loaded) -> None:
        """Every chunk sounds the same, so its head is what the last one's tail was or isn't;
        the drafter is asked, and a wrong draft changes nothing."""
        samples = speech(7, 2.1)
        whole = loaded("overlap", 4)
        said = whole.transcribe(samples, sampling_rate=RATE, language="en", **CHUNK)
        assert said.report.proposed > 0
        assert set(said.report.drafters) == {"overlap"}


class TestWhole:
    @pytest.mark.parametrize("timestamps", [False, True])
    @pytest.mark.parametrize("seconds", [0.3, 0.6])
    def test_a_recording_of_one_chunk_is_plain(
        self, seconds: float, timestamps: bool, loaded: Loaded
    ) -> None:
        samples = speech(8, seconds)
        asked = {"sampling_rate": RATE, "language": "en", "timestamps": timestamps}
        whole = loaded()
        plain = whole.transcribe(samples, **asked)
        said = whole.transcribe(samples, **asked, **CHUNK)
        assert (said.ids, said.text, said.language) == (plain.ids, plain.text, plain.language)
        assert said.segments == plain.segments
        assert said.origins == plain.origins
        assert [chunk.kept for chunk in said.chunks] == [(0, len(plain.ids))]

    @pytest.mark.parametrize("timestamps", [False, True])
    @pytest.mark.parametrize("draft", ["none", "overlap"])
    def test_everything_fits_together(self, draft: str, timestamps: bool, loaded: Loaded) -> None:
        samples = speech(7, 2.1)
        whole = loaded(draft, 3)
        said = whole.transcribe(
            samples, sampling_rate=RATE, language="en", timestamps=timestamps, **CHUNK
        )
        kept = [u for chunk in said.chunks for u in chunk.ids[slice(*chunk.kept)]]
        assert list(said.ids) == kept == [u for part in said.segments for u in part.ids]
        assert len(said.origins) == len(said.ids)
        for token, origin in zip(said.ids, said.origins, strict=True):
            assert token in said.trace[origin.round_number].emitted
        assert len(said.trace) == said.report.rounds
        assert said.report.encoder_runs >= len(said.chunks)
        assert all(0 <= part.start_s <= part.end_s <= 2.1 for part in said.segments)

    def test_words_have_the_recordings_times(self, loaded: Loaded) -> None:
        whole = loaded("overlap")
        said = whole.transcribe(
            speech(7, 2.1), sampling_rate=RATE, language="en", word_timestamps=True, **CHUNK
        )
        assert said.token_times is not None
        assert said.words is not None
        assert len(said.token_times) == len(said.ids)
        assert max(said.token_times) > 1.2
        assert "".join(word.text for word in said.words).strip() == said.text

    def test_silence_between_and_at_the_end(self, loaded: Loaded) -> None:
        nothing = np.zeros(RATE, np.float32)
        samples = np.concatenate([speech(7, 0.5), nothing, speech(8, 0.5), nothing])
        whole = loaded("overlap")
        said = whole.transcribe(samples, sampling_rate=RATE, language="en", **CHUNK)
        for chunk in said.chunks:
            assert list(chunk.ids) == generated(whole.model, samples, chunk, language="en")

    @pytest.mark.parametrize("overlap_s", [0.0, 0.2])
    @pytest.mark.parametrize("seconds", [1.0, 1.4, 1.401, 1.0 + 1 / RATE])
    def test_exact_multiples_and_a_very_short_rest(
        self, seconds: float, overlap_s: float, loaded: Loaded
    ) -> None:
        samples = np.resize(speech(7, 2.1), round(seconds * RATE))
        whole = loaded("overlap")
        said = whole.transcribe(
            samples, sampling_rate=RATE, language="en", chunk_s=0.5, overlap_s=overlap_s
        )
        assert said.chunks[-1].end_s == pytest.approx(len(samples) / RATE)
        for chunk in said.chunks:
            assert list(chunk.ids) == generated(whole.model, samples, chunk, language="en")


class TestChunking:
    @pytest.mark.parametrize("duration", [0.1, 9.99, 10.0, 10.01, 18.0, 18.001, 60.0, 61.7])
    @pytest.mark.parametrize("overlap", [0.0, 2.0, 5.0, 9.9])
    def test_everything_is_in_a_chunk_and_neighbours_overlap(
        self, duration: float, overlap: float
    ) -> None:
        spans = Chunking(10.0, overlap).spans(duration)
        assert spans[0][0] == 0.0
        assert spans[-1][1] == duration
        for before, after in itertools.pairwise(spans):
            assert before[1] - after[0] == pytest.approx(overlap, abs=0.011)
            assert before[1] < after[1]
        assert all(0 < end - start < 10.0 + 1e-9 for start, end in spans)

    def test_the_usual_overlap_is_a_sixth(self) -> None:
        assert Chunking(30.0).shared_s == 5.0

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"chunk_s": 0.0}, "chunk_s: found 0, expected more than 0 and at most 1"),
            ({"chunk_s": -1.0}, "chunk_s: found -1, "),
            ({"chunk_s": 1.5}, "chunk_s: found 1.5, "),
            ({"chunk_s": float("nan")}, "chunk_s: found nan, "),
            ({"chunk_s": 0.5, "overlap_s": 0.5}, "overlap_s: found 0.5, expected 0 or more and le"),
            ({"chunk_s": 0.5, "overlap_s": 0.495}, "overlap_s: found 0.495, "),
            ({"chunk_s": 0.5, "overlap_s": -0.1}, "overlap_s: found -0.1, "),
            ({"chunk_s": 0.5, "overlap_s": float("nan")}, "overlap_s: found nan, "),
            ({"overlap_s": 0.1}, "overlap_s 0.1: only chunks overlap, give chunk_s too"),
            ({"chunk_s": 0.5, "streamer": Collecting()}, "chunks can't be streamed: "),
        ],
    )
    def test_bad_values_are_told_in_one_line(
        self, given: dict[str, Any], says: str, loaded: Loaded
    ) -> None:
        whole = loaded()
        with pytest.raises(OptionError) as caught:
            whole.transcribe(speech(), sampling_rate=RATE, **given)
        one_line(caught.value)
        assert str(caught.value).startswith(says)

    def test_without_chunks_there_is_nothing_to_draft_from(self, loaded: Loaded) -> None:
        whole = loaded("overlap")
        with pytest.raises(OptionError, match="chunk_s"):
            whole.transcribe(speech(), sampling_rate=RATE)


class TestTheExpectedHead:
    STEPS = WhisperSteps(
        vocab_size=108, context=32, start=50, stop_tokens=frozenset({49}), no_timestamps=NO_TIMES
    )

    def head(self, start_s: float, *segments: Segment) -> list[int]:
        return expected_head(Piece(0.0, 1.0, segments), start_s, self.STEPS)

    def test_by_the_share_of_time(self) -> None:
        assert self.head(0.5, Segment(0, 1, (1, 2, 3, 4))) == [3, 4]
        assert self.head(0.99, Segment(0, 1, (1, 2, 3, 4))) == []
        assert self.head(0.5, Segment(0, 1, ())) == []

    def test_marks_are_seconds_of_the_new_chunk(self) -> None:
        first = Segment(0.0, 0.4, (FIRST_TIME, 1, 2, FIRST_TIME + 20))
        second = Segment(0.6, 0.8, (FIRST_TIME + 30, 3, FIRST_TIME + 40))
        assert self.head(0.5, first, second) == [FIRST_TIME + 5, 3, FIRST_TIME + 15]
        assert self.head(0.2, first, second)[:2] == [2, FIRST_TIME + 10]

    def test_words_times_where_they_are_known(self) -> None:
        piece = Piece(0.0, 1.0, (Segment(0, 1, (1, 2, 3, 4)),), (0.7, 0.8, 0.9, 0.95))
        assert expected_head(piece, 0.75, self.STEPS) == [2, 3, 4]
