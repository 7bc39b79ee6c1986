"""Where things stand in the page's drawings. Numbers only: the template draws."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmspec.page.recordings import Recording, Spoken, Strip
from mmspec.report.report import Report

WIDEST, NARROWEST, PX_PER_S = 1030, 300, 110
"""Pixels of a strip: a short clip fits a phone, a long row can be scrolled in its own box."""

LETTER_PX, GAP_PX = 6.6, 7.0
WORKERS = 6
"""Rows of labels under a strip; what doesn't fit keeps its tick and loses its text."""

PHASES = ("encode", "prefill", "draft", "verify", "reconcile", "post")
"""In the order of a run."""

OF_DECODING = {
    "draft": "the drafter's proposals",
    "verify": "the target's passes and the judgement",
    "reconcile": "commit, rollback, stops",
}
"""What runs in the phases that are the same whatever is decoded."""


@dataclass(frozen=True, slots=True)
class Label:
    """A word under a strip: where it begins, and where its text stands.

    `lane` is None where there is no room for the text.
    """

    text: str
    at: float
    x: float
    width: float
    lane: int | None
    marks: tuple[tuple[float, float, int], ...]
    """(x, width, index of the token): how each of its tokens was obtained."""
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class StripFigure:
    """One row of the spectrogram with what was said below it, on one time axis."""

    strip: Strip
    width: int
    ticks: tuple[tuple[float, str], ...]
    labels: tuple[Label, ...]
    spans: tuple[tuple[float, float], ...]
    """(x, width) of each segment, where nothing finer has times."""

    @property
    def lanes(self) -> int:
        """How many rows of labels there are."""
        return max((label.lane + 1 for label in self.labels if label.lane is not None), default=0)


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a bar chart."""

    name: str
    share: float | None
    count: int
    of: int | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run's time."""

    name: str
    what: str
    seconds: float
    start: float
    share: float


def strip_figures(recording: Recording) -> list[StripFigure]:
    """A figure for each strip of a recording."""
    longest = max((strip.end_s - strip.start_s for strip in recording.strips), default=0.0)
    width = min(WIDEST, max(NARROWEST, round(longest * PX_PER_S)))
    figures = []
    for strip in recording.strips:
        px_per_s = width / longest if longest else 1.0
        mine = max(1, round((strip.end_s - strip.start_s) * px_per_s))
        heard = [part for part in recording.spoken if _overlap(part, strip)]
        spans: tuple[tuple[float, float], ...] = ()
        labels: tuple[Label, ...] = ()
        if recording.spoken_kind == "segments":
            spans = tuple(_span(part, strip, px_per_s) for part in heard)
        else:
            begun = [part for part in heard if part.start_s >= strip.start_s]
            labels = _labels(begun, strip, px_per_s, mine)
        times = ticks(strip.start_s, strip.end_s, px_per_s)
        figures.append(StripFigure(strip, mine, times, labels, spans))
    return figures


def _overlap(part: Spoken, strip: Strip) -> bool:
    return part.start_s < strip.end_s and max(part.end_s, part.start_s + 1e-3) > strip.start_s


def _span(part: Spoken, strip: Strip, px_per_s: float) -> tuple[float, float]:
    start_s, end_s = max(part.start_s, strip.start_s), min(part.end_s, strip.end_s)
    return (start_s - strip.start_s) * px_per_s, max(3.0, (end_s - start_s) * px_per_s)


def ticks(start_s: float, end_s: float, px_per_s: float) -> tuple[tuple[float, str], ...]:
    """Where round times stand on an axis, and what they are.

    Example:
        >>> ticks(1.9, 3.0, 120)
        ((12.0, '2'), (72.0, '2.5'), (132.0, '3'))
    """
    step = next((s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10) if s * px_per_s >= 55), 15)
    first, last = math.ceil(start_s / step - 1e-6), math.floor(end_s / step + 1e-6)
    times = [step * number for number in range(first, last + 1)]
    return tuple((round((time - start_s) * px_per_s, 1), clock(time)) for time in times)


def _labels(
    heard: Sequence[Spoken], strip: Strip, px_per_s: float, width: int
) -> tuple[Label, ...]:
    free = [0.0] * WORKERS
    labels = []
    for part in heard:
        x = (part.start_s - strip.start_s) * px_per_s
        long = text_px(part.text)
        x_text = max(0.0, min(x, width - long))
        lane = next((i for i, end in enumerate(free) if end <= x_text), None)
        if lane is not None:
            free[lane] = x_text + long + GAP_PX
        each = long / max(1, len(part.tokens))
        marks = tuple((x_text + i * each, each, token) for i, token in enumerate(part.tokens))
        labels.append(Label(part.text, x, x_text, long, lane, marks, part.start_s, part.end_s))
    return tuple(labels)


def text_px(text: str) -> float:
    """About how wide a label is.

    Example:
        >>> text_px("ab") == 2 * LETTER_PX, text_px("語") == 2 * LETTER_PX
        (True, True)
    """
    wide = sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in text)
    return wide * LETTER_PX


def clock(seconds: float) -> str:
    """A time within a recording.

    Example:
        >>> clock(1.5), clock(75), clock(3600)
        ('1.5', '1:15', '1:00:00')
    """
    if seconds < 60:
        return f"{round(seconds, 1):g}"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def by_offset(report: Report) -> list[Bar]:
    """Of the proposals that reached an offset, the share whose token there was right."""
    pairs = zip(report.acceptance_by_offset, report.proposed_by_offset, strict=True)
    return [
        Bar(str(offset + 1), share, round(share * reached), reached)
        for offset, (share, reached) in enumerate(pairs)
    ]


def by_drafter(report: Report) -> list[Bar]:
    """Who proposed, and how much of it was kept."""
    return [
        Bar(name, share.accepted / share.proposed, share.accepted, share.proposed)
        for name, share in report.drafters.items()
        if share.proposed
    ]


def by_codebook(report: Report) -> list[Bar]:
    """Of the judged frames' codes, the share that the draft had right."""
    found = report.by_codebook
    if found is None:
        return []
    counts = zip(found.shares, found.agreed, found.judged, strict=True)
    return [Bar(str(codebook), *count) for codebook, count in enumerate(counts)]


def by_length(report: Report) -> list[Bar]:
    """Rounds with a proposal by the number of tokens that were kept of it."""
    lengths = report.accepted_length_histogram
    most, longest = max(lengths.values(), default=0), max(lengths, default=-1)
    # Gaps belong to the shape of a short histogram; of a long one they would be most of it.
    shown = range(longest + 1) if longest <= 8 else sorted(lengths)
    return [
        Bar(str(length), lengths.get(length, 0) / most, lengths.get(length, 0)) for length in shown
    ]


def phases(seconds: Mapping[str, float], known: Mapping[str, str]) -> list[Phase]:
    """The parts of a run's time, in the order of the run; shares of one.

    Args:
        seconds: by phase.
        known: what runs in the phases that differ from one kind of input to another.
    """
    whole, what = sum(seconds.values()), {**OF_DECODING, **known}
    found, start = [], 0.0
    for name in [*PHASES, *(name for name in seconds if name not in PHASES)]:
        spent = seconds.get(name, 0.0)
        share = spent / whole if whole else 0.0
        found.append(Phase(name, what.get(name, ""), spent, start, share))
        start += share
    return found
