"""From plain data to HTML. Whatever comes from a model or a file name is text, never markup."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mmspec.output.formats import neutral
from mmspec.page import figures
from mmspec.page.code_grid import CELL_PX, HEAD_PX, CodeCell
from mmspec.page.data import Decoded, PageData, Token
from mmspec.page.pieces import SPACES
from mmspec.page.wording import Wording
from mmspec.report.totals import total

ROUNDS_SHOWN, STRIPS_SHOWN, OFFSETS_SHOWN, SEGMENTS_SHOWN, CODEBOOKS_SHOWN = 200, 8, 10, 20, 12
"""What comes behind these is folded."""

PARAGRAPH_TOKENS = 120
"""Paragraphs have so many tokens at least."""

SENTENCE_ENDS = ".?!。।؟\N{FULLWIDTH QUESTION MARK}\N{FULLWIDTH EXCLAMATION MARK}"

PARITY = {
    "L0": "greedy: the ids are those of ordinary decoding, one by one.",
    "L1": "sampled with a seed: the same ids whatever drafts, and with no drafter.",
    "L2": "sampled freely: the distribution of the output is the target's.",
    "L3": "approximate: codes have another distribution than the target's.",
}


UNDECIDED = {
    "given": "given with the prompt, no decision",
    "filled": "filled in one pass with its codebook, no decision",
    "unknown": "which step decided it isn't known",
}


def render_page(page: PageData) -> str:
    """The whole page."""
    decoded = page.decoded
    report = total([entry.report for entry in decoded]) if decoded else None
    template = _environment().get_template("page.html.j2")
    return template.render(page=page, all=report, figures=figures, parity=PARITY)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mmspec.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    environment.filters |= {
        "percent": percent,
        "seconds": seconds,
        "ratio": ratio,
        "clock": figures.clock,
        "told": told,
        "told_code": told_code,
        "amount": amount,
        "batches": batches,
        "paragraphs": paragraphs,
    }
    environment.globals |= {
        "gaps": tuple(SPACES.values()),
        "rounds_shown": ROUNDS_SHOWN,
        "strips_shown": STRIPS_SHOWN,
        "offsets_shown": OFFSETS_SHOWN,
        "segments_shown": SEGMENTS_SHOWN,
        "codebooks_shown": CODEBOOKS_SHOWN,
        "cell_px": CELL_PX,
        "head_px": HEAD_PX,
    }
    return environment


def _harmless(value: Any) -> Any:
    """Every text of the page passes here: nothing in it reorders a line or hides."""
    return neutral(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def percent(share: float | None) -> Markup:
    """A share of one."""
    # The sign stays with its number; a literal no-break space would be taken for something hidden.
    return Markup("–") if share is None else Markup("{:.0f}&nbsp;%").format(100 * share)


def seconds(value: float) -> str:
    """A duration, three digits at least of what is short.

    Example:
        >>> seconds(0.0123), seconds(0.99999), seconds(1.5), seconds(75.0)
        ('12.3 ms', '1.00 s', '1.50 s', '75 s')
    """
    if round(value, 4) < 1:
        return f"{1000 * value:.1f} ms"
    return f"{value:.2f} s" if value < 60 else f"{value:.0f} s"


def ratio(value: float | None) -> str:
    """How many times sooner."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.2f}×"


def amount(given: float, words: Wording) -> str:
    """How much was given, as its kind is measured; nothing where kinds are mixed."""
    return words.amount % given if words.amount else ""


def told(token: Token, source: str) -> str:
    """What there is to know of a token, on one line.

    Args:
        token: of an output.
        source: what grounded tokens rest on.
    """
    time = None if token.start_s is None else f"at {token.start_s:.2f} s"
    what = "a time" if token.piece.is_time else _quoted(token.piece.whole)
    facts = [f"id {token.token}", what, *_obtained(token), time, *_rests_on(token, source)]
    return " · ".join(fact for fact in facts if fact)


def told_code(cell: CodeCell, entry: Decoded) -> str:
    """What there is to know of a code, on one line.

    Args:
        cell: of a grid.
        entry: whose grid it is; its tokens are steps.
    """
    facts = [f"code {cell.code}", f"frame {cell.frame}, codebook {cell.codebook}"]
    if cell.step is None:
        return " · ".join([*facts, UNDECIDED[cell.undecided]])
    token = entry.tokens[cell.step]
    told = [*_obtained(token), *_rests_on(token, entry.words.source)]
    return " · ".join([*facts, f"step {cell.step}", *(fact for fact in told if fact)])


def _obtained(token: Token) -> list[str]:
    origin = token.origin
    how = {
        "accepted": f"accepted, drafted by {origin.drafter}",
        "recovered": "recovered: the target's own in place of a rejected one",
        "bonus": "bonus: the target's own, nothing was drafted here",
    }[origin.kind]
    return [how, f"round {origin.round_number + 1}"]


def _rests_on(token: Token, source: str) -> list[str | None]:
    drop = None if token.drop is None else f"{token.drop:.2f} nats lost without the {source}"
    return [token.label, drop]


def paragraphs(tokens: Sequence[Token]) -> list[list[Token]]:
    """A long text in pieces to read, cut where a sentence ends or a time stands.

    A text that has lines of its own is left whole.
    """
    if any(token.piece.breaks for token in tokens):
        return [list(tokens)]
    pieces: list[list[Token]] = [[]]
    for token in tokens:
        last = pieces[-1][-1] if pieces[-1] else None
        ends = last is not None and (last.piece.is_time or last.piece.text[-1] in SENTENCE_ENDS)
        if ends and not token.piece.is_time and len(pieces[-1]) >= PARAGRAPH_TOKENS:
            pieces.append([])
        pieces[-1].append(token)
    return pieces


def _quoted(whole: str | None) -> str:
    return "the beginning of a character" if whole is None else f"“{neutral(whole)}”"


def batches(rows: Any, first: int) -> tuple[Any, Any]:
    """What is shown at once and what is folded."""
    return rows[:first], rows[first:]
