"""Who can say a text: mmspec with any drafter, and transformers. An outcome's ids are frames."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from transformers.generation.stopping_criteria import MaxLengthCriteria

from mmspec.compare.code_parity import CodeDifference, compare_codes, when_decided
from mmspec.compare.differences import TIE_GAP, Difference
from mmspec.compare.peers import Outcome, Unavailable, untouched
from mmspec.compat import quiet
from mmspec.engine.frames.processing import FRAME_FORMS
from mmspec.errors import ModelError, OptionError
from mmspec.factorizations import Cell, CodeSteps, DelayedFrames
from mmspec.factorizations.codes import Grid
from mmspec.modalities.base.speculative_decoder import NoDraft
from mmspec.modalities.speech.family import FrameFamily
from mmspec.tasks.tts.request import SpeechRequest
from mmspec.tasks.tts.speaker import Speaker


@runtime_checkable
class TellsCodes(Protocol):
    """A family that finds out which codes transformers' own `generate` comes to."""

    def library_codes(self, model: Any, inputs: Mapping[str, Any], **options: Any) -> Grid:
        """The codes of `model.generate(**inputs, **options)`, without any sound made of them."""
        ...


class MMSpecPeer:
    """mmspec with some drafter, or with none."""

    remark: str | None = None

    def __init__(self, speaker: Speaker, name: str) -> None:
        self.speaker, self.name = speaker, name
        self.why_not: str | None = None

    def run(self, text: str, request: SpeechRequest, hypothesis: Any = None) -> Outcome:
        """Say it with `Speaker.speak`."""
        start = time.perf_counter()
        said = self.speaker.speak(text, request)
        seconds = time.perf_counter() - start
        return Outcome(
            frames_of(said.codes), said.text, said.report.decode_seconds, seconds, said.report
        )


class TransformersPeer:
    """transformers' `generate` on the user's own model object, its codes taken before the codec.

    End to end are the inputs, `generate` up to its codec, and the same codec on its codes.
    """

    remark: str | None = None

    def __init__(self, speaker: Speaker, name: str) -> None:
        self.name, self._speaker = name, speaker
        family = speaker.checkpoint.family
        self.why_not: str | None = None
        if not isinstance(family, TellsCodes | FrameFamily):
            self.why_not = f"which codes transformers comes to isn't known for {family.title}"

    def run(self, text: str, request: SpeechRequest, hypothesis: Any = None) -> Outcome:
        """Decode with `generate`; the model's generation config is as before afterwards.

        Raises:
            OptionError: sampling, whose noise is transformers' own.
        """
        if request.first_temperature > 0:
            raise OptionError("sampled codes can't be compared: transformers draws other noise")
        speaker, watch = self._speaker, LoopWatch()
        with quiet(), untouched(_configured(speaker.model)), torch.no_grad():
            start = time.perf_counter()
            inputs, options = speaker.inputs_for(text), speaker.generation_options(request)
            grid = self._codes(inputs, {**options, "stopping_criteria": [watch]})
            if request.sound and speaker.codec is not None:
                speaker.codec.decode(np.asarray(grid).reshape(len(grid), -1))
            seconds = time.perf_counter() - start
        return Outcome(tuple(grid), text, watch.decode_s, seconds)

    def difference(
        self, text: str, request: SpeechRequest, ours: Outcome, peer: Outcome
    ) -> Difference | None:
        """The first code that differs, None where all are equal."""
        found = code_difference(self._speaker.descriptor, ours.ids, peer.ids)
        if found is None or found.ours is None or found.peer is None or found.codebook is None:
            return found
        gap, cell = None, Cell(found.index, found.codebook)
        with contextlib.suppress(Exception):
            gap = self.gap(text, request, ours.ids, cell, (found.ours, found.peer))
        return replace(found, gap=gap, tie=gap is not None and gap < TIE_GAP)

    @torch.no_grad()
    def gap(
        self,
        text: str,
        request: SpeechRequest,
        frames: Sequence[Any],
        cell: Cell,
        codes: Sequence[int],
    ) -> float | None:
        """How far apart the target's scores for two codes were; None where that can't be told.

        Args:
            text: what was said.
            request: how.
            frames: codes, frames × codebooks, those behind the cell's step included or not.
            cell: where one of the two stands.
            codes: both.
        """
        speaker, steps = self._speaker, self._speaker.descriptor
        family = speaker.checkpoint.family
        if not isinstance(family, FrameFamily) or not isinstance(steps, DelayedFrames):
            return None
        inputs, options = speaker.inputs_for(text), speaker.generation_options(request)
        prepared = family.prepare(speaker.model, inputs, **options)
        target = family.open(prepared, packed=False)
        step = cell.frame + 1 + steps.delays[cell.codebook]  # behind the row of start marks
        try:
            rows, before = target.read_prompt(), steps.from_grid(frames)[len(target.prompt) : step]
            if before:
                rows = target.score(list(before), 1)  # type: ignore[arg-type]
        finally:
            target.close()
        for processor in prepared.processors or ():
            if form := FRAME_FORMS.get(type(processor)):
                rows = form(processor, target.codebooks)(rows)
        one, other = (steps.codebooks[cell.codebook].id_of(code) for code in codes)
        row = rows[-1, cell.codebook]
        return abs(float(row[one] - row[other]))

    def _codes(self, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Grid:
        """Of `generate`: as its family finds them out, else its rows as they are.

        Raises:
            ModelError: it returns something else.
        """
        family: Any = self._speaker.checkpoint.family
        model = self._speaker.model
        if isinstance(family, TellsCodes):
            return family.library_codes(model, inputs, **options)
        made: Any = model.generate(**inputs, **options)
        if not isinstance(made, torch.Tensor) or made.ndim != 3:
            raise ModelError(f"{family.title}: which codes transformers comes to isn't known")
        rows = [tuple(row) for row in made[0].tolist()]
        return family.grid(self._speaker.descriptor, rows)[0]


def _configured(model: Any) -> list[Any]:
    """A model and those of its parts that have a generation config."""
    parts = (model, *model.children())
    return [part for part in parts if getattr(part, "generation_config", None) is not None]


class LoopWatch(MaxLengthCriteria):
    """A stopping criterion that stops nothing: it takes the time from the first step to the last.

    MusicGen's `generate` hands no streamer to its loop, and CSM's takes criteria of length alone.
    """

    def __init__(self) -> None:
        super().__init__(sys.maxsize)
        self._first: float | None = None
        self._last = 0.0

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        """A step was decided."""
        self._last = time.perf_counter()
        self._first = self._last if self._first is None else self._first
        return super().__call__(input_ids, scores, **kwargs)

    @property
    def decode_s(self) -> float:
        """What the steps behind the first one took."""
        return 0.0 if self._first is None else self._last - self._first


def assisted(ours: Speaker) -> Unavailable:
    """transformers' own speculation: for codes it has none that could be compared with."""
    title = ours.checkpoint.family.title
    return Unavailable("hf-assisted", f"transformers' speculation isn't run for {title} here")


def code_difference(steps: Any, ours: Sequence[Any], peer: Sequence[Any]) -> Difference | None:
    """The first difference between frames, by frame unless the order of decisions is known.

    Args:
        steps: that order.
        ours: codes, frames × codebooks.
        peer: likewise.
    """
    if list(ours) == list(peer):
        return None
    parted = _parted(steps, ours, peer) if ours and peer else ()
    if parted:
        place = parted[0]
        return Difference(place.frame, place.first, place.second, None, False, place.codebook)
    end = min(len(ours), len(peer))
    mine, yours = (frames[end][0] if end < len(frames) else None for frames in (ours, peer))
    return Difference(end, mine, yours, None, False, 0)


def _parted(steps: Any, ours: Sequence[Any], peer: Sequence[Any]) -> Sequence[CodeDifference]:
    decided_at = when_decided(steps, len(ours)) if isinstance(steps, CodeSteps) else None
    return compare_codes(ours, peer, decided_at=decided_at).parted


def own(ours: Speaker, name: str) -> MMSpecPeer:
    """mmspec itself as a peer."""
    return MMSpecPeer(ours, name)


def library(ours: Speaker) -> TransformersPeer:
    """transformers on the same target."""
    return TransformersPeer(ours, "hf")


def plain_of(ours: Speaker, *, packed: bool = True) -> Speaker:
    """Ordinary decoding with the same target."""
    return Speaker(replace(ours.checkpoint, packed=packed), NoDraft(), "adaptive")


def step_of(speaker: Speaker) -> str:
    """What one step decides, in words: what a report of it calls a token."""
    if not isinstance(speaker.checkpoint.family, FrameFamily):
        return "one code"
    return f"a frame of {len(speaker.descriptor.codebooks)} codes"


def frames_of(codes: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """A grid of codes as an outcome's ids."""
    return tuple(map(tuple, codes.tolist()))
