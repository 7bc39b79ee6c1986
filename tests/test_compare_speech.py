"""Peers of a model that speaks: equal codes, honest times, and where codes part."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import pytest
import torch
from rich.console import Console
from transformers import LogitsProcessor

import mmspec
from mmspec.compare.comparison import Comparer
from mmspec.compare.peers import Outcome, Unavailable
from mmspec.errors import OptionError
from mmspec.factorizations import Cell, Codebook, DelayedFrames
from mmspec.modalities.base.speculative_decoder import NoDraft
from mmspec.modalities.speech.family import Family
from mmspec.output.render import comparison_table
from mmspec.tasks.tts.peers import (
    LoopWatch,
    MMSpecPeer,
    TransformersPeer,
    assisted,
    code_difference,
    plain_of,
    step_of,
)
from mmspec.tasks.tts.request import SpeechRequest
from mmspec.tasks.tts.speaker import Speaker
from tests.modalities.speech import bed_csm, bed_dia
from tests.modalities.speech.bed_musicgen import tiny, tiny_decoder
from tests.speaking_support import processor

SHORT = SpeechRequest(seconds=0.2, temperature=0.0)
PEERS = ("plain", "hf", "hf-assisted")
TEXT = "five doors"


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny()


def speaker(target: Any, draft: Any = "none", gamma: int = 2) -> Speaker:
    return mmspec.load(target, draft, processor=processor(), gamma=gamma, packed=False)


def compared(ours: Any, request: SpeechRequest = SHORT) -> dict[str, Any]:
    outcome = MMSpecPeer(ours, "ours").run(TEXT, request)
    return Comparer(ours, PEERS, packed=False).compare(TEXT, request, outcome)


class TestPeers:
    @pytest.mark.parametrize("guidance", [1.0, 3.0])
    def test_codes_equal_plain_decoding_and_generate(self, target: Any, guidance: float) -> None:
        ours = speaker(target, tiny_decoder(width=16))
        found = compared(ours, SpeechRequest(seconds=0.2, temperature=0.0, guidance=guidance))
        for peer in ("plain", "hf"):
            assert found[peer].available, found[peer].why
            assert found[peer].ids_equal, found[peer]
            assert found[peer].first_difference is None
            assert found[peer].decode_ratio > 0
            assert found[peer].end_to_end_ratio > 0
        assert not found["hf-assisted"].available
        assert isinstance(assisted(ours), Unavailable)

    @pytest.mark.parametrize(("bed", "text"), [(bed_dia, "[S1] so be it"), (bed_csm, "[0]so be")])
    def test_rows_of_other_families(self, bed: Any, text: str) -> None:
        model = bed.tiny()
        ours = mmspec.load(model, "repeat", processor=bed.processor(), gamma=2, packed=False)
        request = SpeechRequest(max_new_tokens=20, temperature=0.0, sound=False)
        parts = [model, *model.children()]
        before = [str(getattr(part, "generation_config", None)) for part in parts]
        hf = TransformersPeer(ours, "hf").run(text, request)
        assert hf.ids == MMSpecPeer(ours, "ours").run(text, request).ids
        assert len(hf.ids) > 3
        assert hf.decode_s > 0
        assert [str(getattr(part, "generation_config", None)) for part in parts] == before

    def test_what_is_asked_is_handed_on(self, target: Any) -> None:
        ours = speaker(target, "repeat")
        for request, frames in (
            (SpeechRequest(seconds=0.15, temperature=0.0), 15),
            (SpeechRequest(max_new_tokens=12, temperature=0.0), 9),
            (SHORT.few, 29),
        ):
            outcome = MMSpecPeer(ours, "ours").run(TEXT, request)
            hf = TransformersPeer(ours, "hf").run(TEXT, request)
            assert len(outcome.ids) == len(hf.ids) == frames
            assert outcome.ids == hf.ids

    def test_sound_is_made_where_it_is_wanted(
        self, target: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = speaker(target)
        heard: list[int] = []
        decode = ours.codec.decode
        monkeypatch.setattr(
            ours.codec, "decode", lambda grid: heard.append(len(grid)) or decode(grid)
        )
        for sound, times in ((False, 0), (True, 2)):
            request = SpeechRequest(seconds=0.2, temperature=0.0, sound=sound)
            for peer in (MMSpecPeer(ours, "ours"), TransformersPeer(ours, "hf")):
                peer.run(TEXT, request)
            assert heard == [20] * times

    def test_the_model_is_left_as_it_was(self, target: Any) -> None:
        before = target.generation_config.to_dict(), sorted(target.__dict__)
        TransformersPeer(speaker(target), "hf").run(TEXT, SHORT)
        assert (target.generation_config.to_dict(), sorted(target.__dict__)) == before

    def test_sampling_is_no_comparison(self, target: Any) -> None:
        request = SpeechRequest(seconds=0.2, temperature=1.0, seed=3)
        found = compared(speaker(target), request)
        assert found["plain"].ids_equal
        assert not found["hf"].available
        with pytest.raises(OptionError, match="other noise"):
            TransformersPeer(speaker(target), "hf").run(TEXT, request)

    def test_a_config_that_samples_is_none_either(self, target: Any) -> None:
        ours = speaker(target)
        target.generation_config.do_sample = True
        try:
            found = compared(ours, SpeechRequest(seconds=0.2))
        finally:
            target.generation_config.do_sample = False
        assert "the noise is another" in found["hf"].why
        assert not found["plain"].available

    def test_a_family_that_tells_no_codes_of_the_library(self, target: Any) -> None:
        class Silent(Family):
            title = "Silent"
            descriptor = say = draft_of = model_draft = None  # type: ignore[assignment]

        ours = speaker(target)
        object.__setattr__(ours.checkpoint, "family", Silent())
        why = TransformersPeer(ours, "hf").why_not
        assert why == "which codes transformers comes to isn't known for Silent"
        assert step_of(ours) == "one code"

    def test_plain_drafts_nothing(self, target: Any) -> None:
        plain = plain_of(speaker(target, "lookup"), packed=False)
        assert isinstance(plain.draft, NoDraft)
        report = MMSpecPeer(plain, "plain").run(TEXT, SHORT).report
        assert report is not None
        assert (report.proposed, report.rounds) == (0, report.tokens)


def test_the_time_of_a_loop_leaves_its_first_step_out(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5.0, 6.5, 9.0])
    monkeypatch.setattr("mmspec.tasks.tts.peers.time.perf_counter", lambda: next(times))
    watch = LoopWatch()
    assert watch.decode_s == 0.0
    for length in (1, 2, 3):
        assert not watch(torch.zeros(4, length), None).any()
    assert watch.decode_s == 4.0


class TestWhereCodesPart:
    STEPS = DelayedFrames((Codebook(9, 8, start=8, pad=8),) * 2, delays=(0, 2))
    GRID = ((1, 2), (3, 4), (5, 6), (7, 0))

    def test_what_was_decided_first_comes_first(self) -> None:
        other = ((1, 2), (3, 5), (6, 6), (7, 0))  # codebook 1 is two steps late
        found = code_difference(self.STEPS, self.GRID, other)
        assert found is not None
        assert (found.index, found.codebook, found.ours, found.peer) == (2, 0, 5, 6)
        by_frame = code_difference(None, self.GRID, other)
        assert by_frame is not None
        assert (by_frame.index, by_frame.codebook) == (1, 1)

    def test_an_end(self) -> None:
        for ours, peer, mine, yours in (
            (self.GRID, self.GRID[:3], 7, None),
            (self.GRID[:3], self.GRID, None, 7),
        ):
            found = code_difference(self.STEPS, ours, peer)
            assert found is not None
            assert (found.index, found.ours, found.peer) == (3, mine, yours)
        assert code_difference(self.STEPS, self.GRID, self.GRID) is None
        assert code_difference(self.STEPS, (), ()) is None

    @pytest.mark.parametrize("guidance", [1.0, 3.0])
    def test_how_far_apart_the_scores_were(self, target: Any, guidance: float) -> None:
        class Spy(LogitsProcessor):
            rows: ClassVar[list[torch.Tensor]] = []

            def __call__(self, input_ids: Any, scores: Any) -> Any:
                self.rows.append(scores)
                return scores

        request = SpeechRequest(seconds=0.2, temperature=0.0, guidance=guidance)
        ours = speaker(target)
        hf = TransformersPeer(ours, "hf")
        options = {**ours.generation_options(request), "logits_processor": [Spy()]}
        with torch.no_grad():
            codes = hf._codes(ours.inputs_for(TEXT), options)
        frame, codebook, other = 5, 2, 11
        gap = hf.gap(TEXT, request, codes, Cell(frame, codebook), (codes[frame][codebook], other))
        rows = Spy.rows[frame + codebook]  # as late as its number
        given, dropped = rows[codebook], rows[codebook - 4]  # the same row where nothing guides
        row = dropped + guidance * (given - dropped)
        wanted = float(row[codes[frame][codebook]] - row[other])
        assert wanted > 1e-2
        assert gap == pytest.approx(wanted, rel=1e-3)

    def test_it_is_told(self, target: Any) -> None:
        ours = speaker(target)
        seen = MMSpecPeer(ours, "ours").run(TEXT, SHORT)
        wrong = (*seen.ids[:4], (*seen.ids[4][:3], seen.ids[4][3] ^ 1), *seen.ids[5:])
        comparer = Comparer(ours, ["plain"], packed=False)
        found = comparer.compare(TEXT, SHORT, Outcome(wrong, TEXT, 1.0, 1.0))["plain"]
        assert found.ids_equal is False
        difference = found.to_dict()["first_difference"]
        assert (difference["codebook"], difference["tie"]) == (3, False)
        assert difference["gap"] > 1e-3
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(comparison_table([("a", {"plain": found})]))
        assert "at frame 4, codebook 3: " in console.export_text()
