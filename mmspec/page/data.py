"""What a page shows, as plain data: outputs with their tokens and rounds, whatever they are of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mmspec.page.pieces import Piece
from mmspec.page.wording import ANYTHING, HEARD, Wording
from mmspec.prefix import Frame
from mmspec.report.grounding import Grounding
from mmspec.report.report import Report
from mmspec.report.trace import Origin, Round


@dataclass(frozen=True, slots=True)
class Token:
    """One id of the output, or one frame of ids.

    Attributes:
        token: that id, or frame.
        piece: how it looks.
        origin: how it was obtained.
        start_s: when it is said; None where nobody knows.
        label: its class, "grounded" or "syntactic"; None where that wasn't asked for.
        drop: nats that its log-probability loses without the conditioning.
    """

    token: int | Frame
    piece: Piece
    origin: Origin
    start_s: float | None = None
    label: str | None = None
    drop: float | None = None


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round: drafted tokens with their fate, then the target's own.

    Attributes:
        drafted: (text, kept) in the order of the proposal.
        own: the target's own token; None where the output ended before it.
        branches: continuations that were proposed side by side.
        seconds: drafting and verification.
    """

    number: int
    drafter: str
    drafted: tuple[tuple[str, bool], ...]
    own: str | None
    rejected: bool
    branches: int
    block: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded(ABC):
    """An output and how it was obtained; each subclass knows what was given for it.

    Attributes:
        language: of the text, where somebody knows.
        threshold: nats above which a drop makes a token grounded; None: classes aren't known.
        compared: per peer, None where no comparison ran.
    """

    name: str
    text: str
    tokens: tuple[Token, ...]
    rounds: tuple[RoundRow, ...]
    report: Report
    language: str | None = None
    threshold: float | None = None
    compared: Mapping[str, Any] | None = None

    @property
    def drafters(self) -> list[str]:
        """Who contributed tokens, in the order of the report."""
        found = [token.origin.drafter for token in self.tokens]
        names = dict.fromkeys([*self.report.drafters, *found])
        return [name for name in names if name is not None and name in found]

    @property
    def title(self) -> str:
        """Of a page that shows nothing else."""
        return self.name

    @property
    @abstractmethod
    def words(self) -> Wording:
        """What the page calls things."""

    @property
    @abstractmethod
    def heading(self) -> str:
        """What its text is called."""

    @property
    @abstractmethod
    def facts(self) -> str:
        """What there is to know of what was given, in a few words."""

    @property
    @abstractmethod
    def amount(self) -> float:
        """How much was given, by the measure of its `words`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that couldn't be decoded."""

    name: str
    error: str
    words: Wording = HEARD

    @property
    def title(self) -> str:
        """Of a page that shows nothing else."""
        return self.name


@dataclass(frozen=True, slots=True)
class PageData:
    """A run."""

    settings: Mapping[str, Any]
    entries: tuple[Decoded | Failure, ...]

    @property
    def decoded(self) -> list[Decoded]:
        """What didn't fail."""
        return [entry for entry in self.entries if isinstance(entry, Decoded)]

    @property
    def words(self) -> Wording:
        """What all entries have in common."""
        kinds = [entry.words for entry in self.entries]
        return kinds[0] if kinds and kinds.count(kinds[0]) == len(kinds) else ANYTHING


class Shown(Protocol):
    """What a transcription, a description and a speech have in common."""

    @property
    def text(self) -> str:
        """What was said."""
        ...

    @property
    def report(self) -> Report:
        """How it was obtained."""
        ...

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The same for each id."""
        ...

    @property
    def trace(self) -> tuple[Round, ...]:
        """Every round."""
        ...

    @property
    def grounding(self) -> Grounding | None:
        """What each id owes to the conditioning, where that was asked for."""
        ...


class Texts(Protocol):
    """What ids look like."""

    def sequence(self, ids: Sequence[Any]) -> list[Piece]:
        """A piece per id of an output."""
        ...

    def alone(self, token: Any) -> str:
        """An id by itself."""
        ...


def decoding_of(
    said: Shown,
    ids: Sequence[Any],
    texts: Texts,
    *,
    times: Sequence[float | None] | None = None,
    compared: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What every kind of output has, as `Decoded` takes it.

    Args:
        said: with grounding where that was asked for.
        ids: of the output, one per origin.
        texts: turns them into text.
        times: when each id is said.
        compared: peers' comparisons.
    """
    grounding, unknown = said.grounding, [None] * len(ids)
    tokens = zip(
        ids,
        texts.sequence(ids),
        said.origins,
        unknown if times is None else times,
        unknown if grounding is None else grounding.classes,
        unknown if grounding is None else grounding.drops,
        strict=True,
    )
    return {
        "text": said.text,
        "tokens": tuple(Token(*facts) for facts in tokens),
        "rounds": tuple(_row(number, done, texts) for number, done in enumerate(said.trace)),
        "report": said.report,
        "threshold": None if grounding is None else grounding.threshold,
        "compared": compared,
    }


def _row(number: int, done: Round, texts: Texts) -> RoundRow:
    kept = frozenset(done.path)
    has_own = len(done.emitted) > done.accepted
    return RoundRow(
        number=number,
        drafter=done.drafter,
        drafted=tuple((texts.alone(token), i in kept) for i, token in enumerate(done.proposal)),
        own=texts.alone(done.emitted[-1]) if has_own else None,
        rejected=done.rejected,
        branches=done.branches,
        block=done.block,
        seconds=done.draft_s + done.verify_s,
    )
