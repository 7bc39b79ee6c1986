"""Word times: transformers' own numbers for the same ids, and words that lie where they should."""

from __future__ import annotations

import functools
import itertools
import random
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter
from transformers.utils import ModelOutput

from mmspec.errors import ModelError
from mmspec.factorizations import Segment
from mmspec.loading import load_whisper
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.alignment import (
    Watch,
    alignment_heads,
    boundaries,
    smooth,
    warping_path,
)
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.second_pass import SecondPass
from mmspec.modalities.whisper.words import within_segments, words_of

from .tiny import (
    EN,
    EOS,
    FIRST_TIME,
    NO_TIMES,
    POSITIONS,
    START,
    TRANSCRIBE,
    features,
    shared,
    tiny,
    tiny_processor,
)

HEADS = [[1, 0], [2, 1], [2, 0]]
TICK_S = 0.02


def costs(seed: int, rows: int, columns: int, ties: bool) -> np.ndarray:
    chance = np.random.default_rng(seed)
    drawn = chance.normal(size=(rows, columns))
    return drawn.round() if ties else drawn


class TestPath:
    @pytest.mark.parametrize(
        ("rows", "columns"), [(1, 1), (1, 9), (9, 1), (7, 30), (30, 7), (9, 9)]
    )
    @pytest.mark.parametrize("ties", [False, True])
    @pytest.mark.parametrize("seed", range(4))
    def test_it_is_the_one_of_the_slow_loop(
        self, seed: int, rows: int, columns: int, ties: bool
    ) -> None:
        matrix = costs(seed, rows, columns, ties)
        found, want = warping_path(matrix), _dynamic_time_warping(matrix)
        np.testing.assert_array_equal(found, want)

    def test_no_other_monotonic_path_is_cheaper(self) -> None:
        matrix = costs(3, 4, 6, ties=False)

        @functools.cache
        def cheapest(row: int, column: int) -> float:
            if row < 0 or column < 0:
                return np.inf
            before = [(row - 1, column - 1), (row - 1, column), (row, column - 1)]
            least = 0.0 if (row, column) == (0, 0) else min(cheapest(*cell) for cell in before)
            return float(matrix[row, column]) + least

        rows, columns = warping_path(matrix)
        assert matrix[rows, columns].sum() == pytest.approx(cheapest(3, 5), rel=1e-5)

    @pytest.mark.parametrize("width", [1, 3, 7])
    @pytest.mark.parametrize("length", [2, 3, 4, 20])
    def test_the_filter_is_transformers_own(self, width: int, length: int) -> None:
        weights = torch.rand(3, 5, length)
        assert torch.equal(smooth(weights, width), _median_filter(weights, width))

    def test_one_row_starts_at_the_start(self) -> None:
        assert boundaries(torch.rand(2, 1, 12).softmax(-1), 7).tolist() == [0]


def opened(model: Any, mel: Tensor, packed: bool = True) -> tuple[Whisper, DecoderTarget, Tensor]:
    whisper = Whisper.of(model, tiny_processor(), packed=packed)
    states = whisper.encode(mel)
    return whisper, whisper.open(states), states


def times_by_transformers(
    model: Any, mel: Tensor, prompt: list[int], ids: list[int], frames: int
) -> Tensor:
    """Of each of `ids`, had `generate` said them and the end mark."""
    read = torch.tensor([[*prompt, *ids]])
    with torch.no_grad():
        seen = model(mel, decoder_input_ids=read, output_attentions=True).cross_attentions
    outputs = ModelOutput(cross_attentions=[seen], sequences=read)
    times = model._extract_token_timestamps(
        outputs,
        model.generation_config.alignment_heads,
        num_frames=torch.tensor([frames]),
        num_input_ids=len(prompt),
    )
    return times[0, len(prompt) : -1]


def times_here(
    model: Any, mel: Tensor, prompt: list[int], ids: list[int], frames: int, packed: bool
) -> Tensor:
    whisper, target, _ = opened(model, mel, packed)
    with closing(target):
        watch = Watch(model.get_decoder().layers, target, alignment_heads(whisper))
        with watch.listening():
            target.score([*prompt, *ids], 0)
        weights = watch.weights(len(ids), frames // 2)
    return torch.from_numpy(boundaries(weights, model.config.median_filter_width) * TICK_S).float()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("frames", [1 + 2 * 21, 2 * POSITIONS])
@pytest.mark.parametrize(("seed", "width"), [(1, 7), (5, 7), (11, 3)])
def test_times_are_transformers_own(seed: int, width: int, frames: int, packed: bool) -> None:
    """For any ids, times among them or not; both decoder paths."""
    shape: dict[str, Any] = {"says": {"alignment_heads": HEADS}, "median_filter_width": width}
    slow, model = tiny(seed, attention="eager", **shape), tiny(seed, **shape)
    mel, chance = features(seed), random.Random(seed)
    different = set()
    for length in (1, 2, 9, 25):
        ids = [chance.randrange(4, FIRST_TIME + POSITIONS) for _ in range(length)]
        prompt = [START, EN, TRANSCRIBE, NO_TIMES][: chance.choice([3, 4])]
        want = times_by_transformers(slow, mel, prompt, ids, frames)
        found = times_here(model, mel, prompt, ids, frames, packed)
        torch.testing.assert_close(found, want)
        different |= {*found.tolist()}
    assert len(different) > 4


@pytest.mark.parametrize("seed", [1, 5])
def test_generate_says_the_same(seed: int) -> None:
    """A check of the reference itself: transformers' own call, from features to times."""
    says = {"alignment_heads": HEADS}
    slow = tiny(seed, attention="eager", says=says)
    mel, prompt = features(seed), [START, EN, TRANSCRIBE, NO_TIMES]
    mask = (torch.arange(2 * POSITIONS)[None] < 60).long()
    out = slow.generate(mel, language="en", attention_mask=mask, return_token_timestamps=True)
    ids, times = out["sequences"][0].tolist()[:-1], out["token_timestamps"][0, :-1]
    assert len(ids) > 9
    torch.testing.assert_close(times_here(tiny(seed, says=says), mel, prompt, ids, 60, True), times)


class TestHeads:
    def test_the_checkpoint_names_them(self) -> None:
        whisper = Whisper.of(tiny(says={"alignment_heads": HEADS}))
        assert alignment_heads(whisper) == ((1, 0), (2, 1), (2, 0))

    def test_else_it_is_the_upper_half(self) -> None:
        assert alignment_heads(Whisper.of(shared())) == ((1, 0), (1, 1), (2, 0), (2, 1))

    @pytest.mark.parametrize("wrong", [[3, 0], [0, 2], [-1, 0]])
    def test_heads_that_are_not_there_are_refused(self, wrong: list[int]) -> None:
        whisper = Whisper.of(tiny(says={"alignment_heads": [[1, 0], wrong]}))
        with pytest.raises(ModelError, match=f"head {wrong[1]} of layer {wrong[0]}; the decoder"):
            alignment_heads(whisper)


class TestRereading:
    PROMPT = (START, EN, TRANSCRIBE, NO_TIMES)
    IDS = (7, 31, 4, 12, 9)

    def read(self, packed: bool, prompt: tuple[int, ...], ids: tuple[int, ...]) -> SecondPass:
        whisper, target, states = opened(shared(), features(), packed)
        look = SecondPass(whisper, times=True, silence=None)
        with closing(target):
            target.score(prompt, 1)
            look(target, prompt, states, ids, 3.0, 80)
        return look

    @pytest.mark.parametrize("packed", [True, False])
    def test_spans_follow_each_other_inside_the_audio(self, packed: bool) -> None:
        spans = self.read(packed, self.PROMPT, self.IDS).spans
        assert len(spans) == len(self.IDS)
        assert spans[0][0] == 3.0
        for (_, end_s), (start_s, _) in itertools.pairwise(spans):
            assert end_s == start_s
        assert all(start_s <= end_s <= 3.8 for start_s, end_s in spans)

    def test_the_row_behind_the_prompt_finds_where_a_first_word_ends(self) -> None:
        prompt, ids = list(self.PROMPT), list(self.IDS)
        ends = [end_s - 3.0 for _, end_s in self.read(True, self.PROMPT, self.IDS).spans]
        want = times_here(shared(), features(), prompt[:-1], [prompt[-1], *ids], 80, True)[1:]
        np.testing.assert_allclose(ends, want, atol=1e-6)

    def test_a_first_time_takes_no_time(self) -> None:
        prompt, ids = list(self.PROMPT[:-1]), [FIRST_TIME, *self.IDS]
        spans = self.read(True, tuple(prompt), tuple(ids)).spans
        assert spans[0] == (3.0, 3.0)
        want = times_here(shared(), features(), prompt, ids, 80, True)
        np.testing.assert_allclose([end_s - 3.0 for _, end_s in spans], want, atol=1e-6)

    def test_a_window_with_no_units_has_no_spans(self) -> None:
        assert self.read(True, self.PROMPT, ()).spans == []

    @pytest.mark.parametrize("packed", [True, False])
    def test_the_state_that_decoded_is_not_touched(self, packed: bool) -> None:
        whisper, target, states = opened(shared(), features(), packed)
        with closing(target):
            target.score([*self.PROMPT, *self.IDS], 1)
            target.state.poison_unused()
            layers = [target.state.growing(layer) for layer in range(3)]
            before = [layer.keys.clone() for layer in layers]
            counts = target.forwards, target.state.length, target.state.frozen
            modules = {name: len(m._forward_hooks) for name, m in whisper.model.named_modules()}
            SecondPass(whisper, times=True, silence=None)(
                target, self.PROMPT, states, self.IDS, 0.0, 100
            )
            assert (target.forwards, target.state.length, target.state.frozen) == counts
            for layer, keys in zip(layers, before, strict=True):
                torch.testing.assert_close(layer.keys, keys, rtol=0, atol=0, equal_nan=True)
            row = target.score([9], 1)
            assert row.isfinite().all()
        hooks = {name: len(m._forward_hooks) for name, m in whisper.model.named_modules()}
        assert hooks == modules
        assert not any("forward" in vars(module) for module in whisper.model.modules())

    def test_conditioning_is_not_computed_again(self) -> None:
        _, target, _ = opened(shared(), features())
        with closing(target):
            target.score(self.PROMPT, 1)
            with closing(target.fork()) as again:
                again.score([*self.PROMPT, *self.IDS], 1)
                for layer in range(3):
                    kept, used = (one.state.conditioning(layer) for one in (target, again))
                    assert used.keys.data_ptr() == kept.keys.data_ptr()


class TestPlaces:
    @pytest.mark.parametrize("seed", range(20))
    def test_times_stay_in_their_segment_and_never_run_backwards(self, seed: int) -> None:
        chance = random.Random(seed)
        segments, spans = [], []
        for _ in range(4):
            start_s = chance.uniform(0, 9)
            count = chance.randrange(5)
            segments.append(Segment(start_s, start_s + chance.uniform(0, 2), tuple(range(count))))
            spans += [tuple(sorted((chance.uniform(0, 12), chance.uniform(0, 12))))] * count
        segments.sort(key=lambda segment: segment.start_s)
        latest_s = 0.0
        for segment, inside in zip(segments, within_segments(segments, spans), strict=True):
            assert len(inside) == len(segment.ids)
            for start_s, end_s in inside:
                assert latest_s <= start_s <= end_s <= max(segment.end_s, latest_s)
                assert segment.start_s <= start_s or latest_s == start_s
                latest_s = end_s

    def test_times_inside_are_left_alone(self) -> None:
        spans = [(1.0, 1.5), (1.5, 1.9)]
        assert within_segments([Segment(0.5, 2.0, (1, 2))], spans) == [spans]

    def test_a_time_that_opens_a_segment_stands_where_it_says(self) -> None:
        segments = [Segment(0.5, 2.0, (9, 1)), Segment(2.1, 3.0, (1, 9)), Segment(2.9, 4.0, (9,))]
        spans = [(1.0, 1.5), (1.5, 1.9), (2.2, 2.4), (2.4, 3.0), (3.5, 3.6)]
        found = within_segments(segments, spans, lambda token: token == 9)
        want = [[(0.5, 1.5), (1.5, 1.9)], [(2.2, 2.4), (2.4, 3.0)], [(3.0, 3.6)]]
        assert found == want  # the last one begins no earlier than what was before it ends

    def test_every_unit_needs_a_span(self) -> None:
        with pytest.raises(ValueError, match="found 1 spans for 2 tokens"):
            within_segments([Segment(0.0, 1.0, (1, 2))], [(0.0, 0.1)])


@functools.cache
def sample() -> Whisper:
    """A byte-level tokenizer that can spell everything."""
    return load_whisper("sample", "cpu")


def grouped(text: str, language: str | None) -> list[str]:
    tokenizer = sample().processor.tokenizer
    ids = tokenizer(text, add_special_tokens=False).input_ids
    spans = [(float(index), index + 1.0) for index in range(len(ids))]
    words = words_of(sample(), ids, spans, language)
    assert [token for word in words for token in word.ids] == ids
    assert "".join(word.text for word in words) == text
    position = 0
    for word in words:
        assert word.start_s == position
        position += len(word.ids)
        assert word.end_s == position
    return [word.text for word in words]


class TestWords:
    @pytest.mark.parametrize(
        ("text", "language", "words"),
        [
            (" He was not, he said.", "en", [" He", " was", " not,", " he", " said."]),
            (' "Yes!" (he', None, [' "Yes!"', " (he"]),
            (" Füße größer", "de", [" Füße", " größer"]),
            ("日本語。", "ja", ["日", "本", "語。"]),
            ("中文", "zh", ["中", "文"]),
            ("中文", "yue", ["中", "文"]),
            ("日本語", "en", ["日本語"]),
        ],
    )
    def test_they_are_grouped_as_the_language_writes(
        self, text: str, language: str | None, words: list[str]
    ) -> None:
        assert grouped(text, language) == words

    def test_times_and_marks_belong_to_no_word(self) -> None:
        whisper = Whisper.of(shared(), tiny_processor())
        ids = [FIRST_TIME, 32, 3, NO_TIMES, 4, FIRST_TIME + 9, FIRST_TIME + 9, 36, EOS]
        spans = [(float(index), index + 1.0) for index in range(len(ids))]
        words = words_of(whisper, ids, spans, "en")
        assert [token for word in words for token in word.ids] == [32, 3, 4, 36]
        assert words[0].start_s == 0.0  # the time that opens the segment takes none
        assert words[-1].start_s == 7.0

    def test_nothing_said_no_words(self) -> None:
        whisper = Whisper.of(shared(), tiny_processor())
        assert words_of(whisper, [FIRST_TIME], [(0.0, 0.0)], "en") == ()
        assert words_of(whisper, [], [], None) == ()
