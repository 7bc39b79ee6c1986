"""The same input decoded by others, in the same process: equal ids, and how long they took.

Peers: `plain` is mmspec's own ordinary decoding, `hf` transformers' `generate`, `hf-assisted`
transformers' own speculation with the same drafter. A peer that can't run the case says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mmspec.compare.differences import Difference
from mmspec.compare.peers import PEERS, Library, Outcome, Peer, PeerRoom, one_reason
from mmspec.errors import OptionError
from mmspec.tasks.base import Loaded
from mmspec.tasks.registry import room


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


@dataclass(frozen=True)
class Field:
    """The peers of a loaded model, all on its target.

    Attributes:
        ours: what they are peers of.
        plain: mmspec's ordinary decoding.
        hf: transformers.
    """

    ours: Loaded[Any, Any, Any]
    plain: Peer
    hf: Library

    @classmethod
    def of(cls, ours: Loaded[Any, Any, Any], *, packed: bool = True) -> Field:
        """Make them.

        Args:
            ours: a target and a drafter.
            packed: whether `ours` runs packed layers; `plain` does what `ours` does.
        """
        peers = peers_of(ours)
        return cls(
            ours, peers.own(peers.plain_of(ours, packed=packed), "plain"), peers.library(ours)
        )

    def peer(self, name: str) -> Peer:
        """One among `PEERS`."""
        if name == "hf-assisted":
            return peers_of(self.ours).assisted(self.ours)
        return self.hf if name == "hf" else self.plain


def peers_of(ours: Loaded[Any, Any, Any]) -> PeerRoom:
    """What a task room knows of those who can do its task."""
    return room(ours.task, "peers")


class Comparer:
    """Runs peers beside a loaded model.

    Args:
        ours: what they are compared with.
        peers: names among `PEERS`.
        packed: whether `ours` runs packed layers; `plain` does what `ours` does.

    Raises:
        OptionError: an unknown peer.
    """

    def __init__(
        self, ours: Loaded[Any, Any, Any], peers: Sequence[str], *, packed: bool = True
    ) -> None:
        check_peers(peers)
        field = Field.of(ours, packed=packed)
        self._hf = field.hf
        self.peers: list[Peer] = [field.peer(name) for name in peers]

    def warm_up(self, subject: Any, request: Any) -> None:
        """Let every peer decode a little, so that no one pays for being first."""
        for peer in self.peers:
            with contextlib.suppress(Exception):  # `compare` will tell what is wrong
                peer.run(subject, request.few)

    def compare(self, subject: Any, request: Any, ours: Outcome) -> dict[str, Comparison]:
        """Every peer on what `ours` was made of."""
        return {peer.name: self._compared(peer, subject, request, ours) for peer in self.peers}

    def _compared(self, peer: Peer, subject: Any, request: Any, ours: Outcome) -> Comparison:
        why_not = peer.why_not or self._incomparable(peer, request, ours)
        if why_not is not None:
            return Comparison(False, why_not)
        try:
            outcome = peer.run(subject, request)
        except Exception as error:  # whatever a peer raises is an answer, not our failure
            return Comparison(False, f"{peer.name} raised {one_reason(error)}")
        return Comparison(
            available=True,
            ids_equal=outcome.ids == ours.ids,
            decode_ratio=ratio(outcome.decode_s, ours.decode_s),
            end_to_end_ratio=ratio(outcome.end_to_end_s, ours.end_to_end_s),
            first_difference=self.difference(subject, request, ours, outcome),
            remark=peer.remark,
        )

    def _incomparable(self, peer: Peer, request: Any, ours: Outcome) -> str | None:
        fell_back = ours.report is not None and ours.report.parity != "L0"
        sampled = request.first_temperature > 0 or fell_back
        if sampled and (peer.name != "plain" or request.seed is None):
            return "sampled ids can't be compared: the noise is another (give mmspec a --seed)"
        return None

    def difference(
        self, subject: Any, request: Any, ours: Outcome, peer: Outcome
    ) -> Difference | None:
        """The first difference, None where the ids are equal."""
        return self._hf.difference(subject, request, ours, peer)


def check_peers(peers: Sequence[str]) -> None:
    """Raise where a peer's name is unknown.

    Raises:
        OptionError: names the known ones.
    """
    for peer in peers:
        if peer not in PEERS:
            raise OptionError(f"compare: found {peer!r}, expected names among {', '.join(PEERS)}")


def ratio(peer_s: float, ours_s: float) -> float | None:
    """The peer's time over ours; None where there was nothing to time."""
    return peer_s / ours_s if peer_s > 0 and ours_s > 0 else None
