"""Drafters for models that say frames of codes: how each kind is opened on what is being said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mmspec.errors import ModelError
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.speech.chain import LookupDraft as ChainLookupDraft
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.family import FrameFamily
from mmspec.modalities.speech.heads import FrameHeads
from mmspec.modalities.speech.request import Request
from mmspec.prefix import Frame
from mmspec.proposals import Drafter, LazyDrafter, Outlook
from mmspec.proposals.frames import (
    FrameIndex,
    FrameModelDrafter,
    HeadsDrafter,
    LookupDrafter,
    RepeatDrafter,
)


class RepeatDraft:
    """The last frame once more, where it has just been said twice."""

    name = "repeat"

    def open(self, request: Request) -> Drafter | None:
        """A fresh one."""
        return RepeatDrafter()


class LookupDraft:
    """Lookup in what was committed, and in what the voice has said before.

    What a request names as said before is remembered for those that follow.

    Args:
        remembers: utterances that are kept at most; the oldest is forgotten first.
    """

    name = "lookup"

    def __init__(self, remembers: int = 64) -> None:
        self._remembers = remembers
        self._indexed: dict[tuple[Frame, ...], FrameIndex] = {}

    def open(self, request: Request) -> Drafter | None:
        """An index of its own, and those of the earlier utterances that the request names."""
        for earlier in request.asked.earlier:
            self.remember(earlier)
        return LookupDrafter(list(self._indexed.values())[::-1])

    def remember(self, frames: Sequence[Frame]) -> None:
        """Look up in these frames from now on."""
        key = tuple(frames)
        if key not in self._indexed:
            self._indexed[key] = FrameIndex()
            self._indexed[key].add(key)
        while len(self._indexed) > self._remembers:
            self._indexed.pop(next(iter(self._indexed)))


@dataclass
class ModelDraft:
    """A smaller model of the same order of codes, on the same text.

    Args:
        target: the checkpoint to be drafted for.
        drafter: transformers' model.
        name: as in reports.

    Raises:
        ModelError: it writes codes in another order; names both sides.
    """

    target: SpeechCheckpoint
    drafter: Any
    name: str = "model"
    conditioning: ClassVar[str] = "own"
    drafts: ClassVar[type[FrameModelDrafter]] = FrameModelDrafter
    _cost: float = field(init=False)

    def __post_init__(self) -> None:
        family = frame_family(self.target)
        family.check_drafter(self.target.model, self.drafter)
        self._cost = family.step_size(self.drafter) / family.step_size(self.target.model)

    def open(self, request: Request) -> Drafter | None:
        """A drafter that reads the same prompt when first asked."""

        def open_drafter() -> Drafter:
            opened = frame_family(self.target).open_drafter(
                request.prepared,
                self.drafter,
                inputs=request.asked.drafter_inputs or request.asked.inputs,
                packed=self.target.packed,
            )
            return self.drafts(
                opened, opened.read_prompt(), self.name, self._cost, self.conditioning
            )

        room = request.target.max_rows
        before = Outlook("model", first=0.7, rest=0.8, available=room)
        return LazyDrafter(self.name, self._cost, self.conditioning, before, open_drafter)


class HeadsDraft:
    """Heads on the target's own hidden state.

    Args:
        target: the checkpoint that they were trained on.
        heads: theirs.

    Raises:
        ModelError: they read or give something else than this target has; names both sides.
    """

    name = "heads"

    def __init__(self, target: SpeechCheckpoint, heads: FrameHeads) -> None:
        width = frame_family(target).width(target.model)
        codebooks, shape = len(target.steps.codebooks), heads.config
        if (shape.hidden, shape.codebooks) != (width, codebooks):
            raise ModelError(
                f"the heads read states of width {shape.hidden} for {shape.codebooks} codebooks, "
                f"the target's are {width} wide for {codebooks}"
            )
        self._heads = heads.to(target.device)

    def open(self, request: Request) -> Drafter | None:
        """A drafter over the states that the target's own passes leave behind."""
        return HeadsDrafter(request.target, self._heads, self._heads.config.offsets)


def lookup_draft(target: SpeechCheckpoint) -> Draft:
    """Lookup, in frames or in the codes of a chain."""
    return LookupDraft() if isinstance(target.family, FrameFamily) else ChainLookupDraft()


def heads_draft(target: SpeechCheckpoint, folder: str) -> HeadsDraft:
    """Heads in a folder.

    Raises:
        ModelError: they can't be read, or don't fit the target.
    """
    frame_family(target)
    try:
        return HeadsDraft(target, FrameHeads.from_pretrained(folder, target.model.dtype))
    except ModelError as error:
        raise ModelError(f"draft: {error}") from None


def repeat_draft(target: SpeechCheckpoint) -> RepeatDraft:
    """The last frame once more.

    Raises:
        ModelError: one step decides a single code there.
    """
    frame_family(target)
    return RepeatDraft()


def model_draft(target: SpeechCheckpoint, drafter: Any, name: str) -> Draft:
    """Another model as a drafter: heads, or a smaller one of the same codes.

    Raises:
        ModelError: it decides other codes than the target; names both sides.
    """
    kind = type(target.family).draft_kind or ModelDraft
    return kind(target, drafter, name)


def frame_family(target: SpeechCheckpoint) -> FrameFamily:
    """A checkpoint's family, where one step decides a frame.

    Raises:
        ModelError: one step decides a single code there.
    """
    if not isinstance(target.family, FrameFamily):
        raise ModelError(f"{target.family.title} decides one code at a step, no frames")
    return target.family
