"""The same recording, image or text decoded by others, in the same process: equal ids, and how long
they took. Where a model speaks, its ids are frames of codes.

Peers: `plain` is mmspec's own ordinary decoding, `hf` transformers' `generate`, `hf-assisted`
transformers' own speculation with the same drafter. A peer that can't run the case says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mmspec.compare.code_parity import CodeDifference, compare_codes, when_decided
from mmspec.errors import OptionError
from mmspec.factorizations import Cell, CodeSteps
from mmspec.tasks.asr.peers import (
    Contender,
    MMSpecContender,
    Outcome,
    TransformersContender,
    one_reason,
    plain_of,
)
from mmspec.tasks.asr.transcriber import Transcriber
from mmspec.tasks.settings import PEERS
from mmspec.tasks.tts import peers as speech
from mmspec.tasks.tts.peers import MMSpecSpeaker, TransformersSpeaker
from mmspec.tasks.tts.speaker import Speaker
from mmspec.tasks.vlm.peers import MMSpecLooker, TransformersLooker
from mmspec.tasks.vlm.peers import plain_of as viewer_without
from mmspec.tasks.vlm.viewer import Viewer

TIE_GAP = 1e-3
"""Top-2 logit gap in float32 under which a difference is rounding, not a fault."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two outputs differ; an id is None where that output has ended.

    Attributes:
        index: of the id, or of the frame.
        gap: difference of the target's logits for the two ids there; None where it can't be told.
        tie: the gap is rounding-sized.
        codebook: of the code in its frame; None where ids are no frames.
    """

    index: int
    ours: int | None
    peer: int | None
    gap: float | None
    tie: bool
    codebook: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A peer beside mmspec on one input. Ratios are the peer's time over mmspec's.

    Attributes:
        why: why the peer can't run the case, where it can't.
        remark: what is to be known beside the figures.
    """

    available: bool
    why: str | None = None
    ids_equal: bool | None = None
    decode_ratio: float | None = None
    end_to_end_ratio: float | None = None
    first_difference: Difference | None = None
    remark: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        if not self.available:
            return {"available": False, "why": self.why}
        facts = {name: value for name, value in asdict(self).items() if name != "why"}
        return facts if self.remark else {n: v for n, v in facts.items() if n != "remark"}


Ours = Transcriber | Viewer | Speaker
Library = TransformersContender | TransformersLooker | TransformersSpeaker


@dataclass(frozen=True)
class Field:
    """The peers of a loaded model, all on its target.

    Attributes:
        ours: what they are peers of.
        plain: mmspec's ordinary decoding.
        hf: transformers.
    """

    ours: Ours
    plain: Contender
    hf: Library

    @classmethod
    def of(cls, ours: Ours, *, packed: bool = True) -> Field:
        """Make them.

        Args:
            ours: a target and a drafter.
            packed: whether `ours` runs packed layers; `plain` does what `ours` does.
        """
        hf: Library
        if isinstance(ours, Viewer):
            plain = cls.own(viewer_without(ours, packed=packed), "plain")
            hf = TransformersLooker(ours.model, ours.processor, "hf")
        elif isinstance(ours, Speaker):
            plain = cls.own(speech.plain_of(ours, packed=packed), "plain")
            hf = TransformersSpeaker(ours, "hf")
        else:
            plain = cls.own(plain_of(ours, packed=packed), "plain")
            hf = TransformersContender(ours.model, ours.processor, "hf")
        return cls(ours, plain, hf)

    def peer(self, name: str) -> Contender:
        """One among `PEERS`."""
        if name == "hf-assisted":
            return self.assisted(self.ours)
        return self.hf if name == "hf" else self.plain

    @staticmethod
    def own(ours: Ours, name: str) -> Contender:
        """mmspec itself as a contender."""
        if isinstance(ours, Viewer):
            return MMSpecLooker(ours, name)
        if isinstance(ours, Speaker):
            return MMSpecSpeaker(ours, name)
        return MMSpecContender(ours, name)

    @staticmethod
    def assisted(ours: Ours) -> Contender:
        """transformers' own speculation with the drafter of `ours`."""
        if isinstance(ours, Viewer):
            return TransformersLooker.assisted(ours)
        if isinstance(ours, Speaker):
            return speech.assisted(ours)
        return TransformersContender.assisted(ours)


class Comparer:
    """Runs peers beside a loaded model.

    Args:
        ours: what they are compared with.
        peers: names among `PEERS`.
        packed: whether `ours` runs packed layers; `plain` does what `ours` does.

    Raises:
        OptionError: an unknown peer.
    """

    def __init__(self, ours: Ours, peers: Sequence[str], *, packed: bool = True) -> None:
        check_peers(peers)
        field = Field.of(ours, packed=packed)
        self._hf, self._steps = field.hf, ours.descriptor
        self.contenders: list[Contender] = [field.peer(name) for name in peers]

    def warm_up(self, subject: Any, request: Any) -> None:
        """Let every peer decode a little, so that no one pays for being first."""
        for contender in self.contenders:
            with contextlib.suppress(Exception):  # `compare` will tell what is wrong
                contender.run(subject, request.few)

    def compare(self, subject: Any, request: Any, ours: Outcome) -> dict[str, Comparison]:
        """Every peer on what `ours` was made of."""
        return {
            contender.name: self._compared(contender, subject, request, ours)
            for contender in self.contenders
        }

    def _compared(
        self, contender: Contender, subject: Any, request: Any, ours: Outcome
    ) -> Comparison:
        why_not = contender.why_not or self._incomparable(contender, request, ours)
        if why_not is not None:
            return Comparison(False, why_not)
        try:
            peer = contender.run(subject, request)
        except Exception as error:  # whatever a peer raises is an answer, not our failure
            return Comparison(False, f"{contender.name} raised {one_reason(error)}")
        return Comparison(
            available=True,
            ids_equal=peer.ids == ours.ids,
            decode_ratio=ratio(peer.decode_s, ours.decode_s),
            end_to_end_ratio=ratio(peer.end_to_end_s, ours.end_to_end_s),
            first_difference=self.difference(subject, request, ours, peer),
            remark=contender.remark,
        )

    def _incomparable(self, contender: Contender, request: Any, ours: Outcome) -> str | None:
        fell_back = ours.report is not None and ours.report.parity != "L0"
        sampled = request.first_temperature > 0 or fell_back
        if sampled and (contender.name != "plain" or request.seed is None):
            return "sampled ids can't be compared: the noise is another (give mmspec a --seed)"
        return None

    def difference(
        self, subject: Any, request: Any, ours: Outcome, peer: Outcome
    ) -> Difference | None:
        """The first difference, None where the ids are equal."""
        if isinstance(self._hf, TransformersSpeaker):
            return self._code_difference(self._hf, subject, request, ours, peer)
        index = first_difference(ours.ids, peer.ids)
        if index is None:
            return None
        mine, yours = _at(ours.ids, index), _at(peer.ids, index)
        gap = None
        if self._hf.knows_gap(ours):
            end = self._hf.end
            pair = (end if mine is None else mine, end if yours is None else yours)
            with contextlib.suppress(Exception):
                gap = self._hf.gap(subject, request, ours.ids[:index], pair)
        return Difference(index, mine, yours, gap, gap is not None and gap < TIE_GAP)

    def _code_difference(
        self, hf: TransformersSpeaker, text: str, request: Any, ours: Outcome, peer: Outcome
    ) -> Difference | None:
        found = code_difference(self._steps, ours.ids, peer.ids)
        if found is None or found.ours is None or found.peer is None or found.codebook is None:
            return found
        gap, cell = None, Cell(found.index, found.codebook)
        with contextlib.suppress(Exception):
            gap = hf.gap(text, request, ours.ids, cell, (found.ours, found.peer))
        return replace(found, gap=gap, tie=gap is not None and gap < TIE_GAP)


def check_peers(peers: Sequence[str]) -> None:
    """Raise where a peer's name is unknown.

    Raises:
        OptionError: names the known ones.
    """
    for peer in peers:
        if peer not in PEERS:
            raise OptionError(f"compare: found {peer!r}, expected names among {', '.join(PEERS)}")


def first_difference(ours: Sequence[int], peer: Sequence[int]) -> int | None:
    """Index of the first difference, None where both are equal.

    Example:
        >>> first_difference([1, 2, 3], [1, 2]), first_difference([1], [1])
        (2, None)
    """
    if list(ours) == list(peer):
        return None
    pairs = zip(ours, peer, strict=False)
    shorter = min(len(ours), len(peer))
    return next((index for index, (one, other) in enumerate(pairs) if one != other), shorter)


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


def ratio(peer_s: float, ours_s: float) -> float | None:
    """The peer's time over ours; None where there was nothing to time."""
    return peer_s / ours_s if peer_s > 0 and ours_s > 0 else None


def _at(ids: Sequence[int], index: int) -> int | None:
    return ids[index] if index < len(ids) else None
