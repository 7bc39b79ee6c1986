"""What a CTC output says of a text: how likely a recording begins with it, and what follows.

Shapes: T frames, S symbols, one of them the blank. A path names one symbol a frame; it says a text
when its repeats are joined and its blanks left out (Graves et al. 2006, section 4.1). b[t] and n[t]
are the probabilities that the first t frames say exactly the text so far, the last of them a blank,
or its last symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_LOG = -1000.0
"""Logarithm that stands for what is impossible."""

REACH = 24
"""Frames that the variables are followed beyond where they mattered before."""


class _Variables(NamedTuple):
    """b and n in logarithms, behind `start`, `start` + 1, … frames; what lies outside is nothing.

    `enter` is their sum: what a symbol that isn't the last one can follow.
    """

    start: int
    b: Array
    n: Array
    enter: Array


class ForwardVariables:
    """The forward variables of a growing text, one recursion over the frames for a new symbol.

    With enter = b + n, or b alone where a symbol repeats the one before (a blank has to lie
    between), the text that is longer by u has n'[t] = p[t, u] · (n'[t - 1] + enter[t - 1]) and
    b'[t] = p[t, blank] · (b'[t - 1] + n'[t - 1]). In logarithms both are cumulative sums. Only
    frames where the text may end are looked at, so a symbol costs the same wherever it stands.

    Args:
        log_probs: `[T, S]`.
        blank: the blank's index.
        within: nats below the likeliest frame at which the variables are taken for nothing.
        sure: of a run of frames whose blank is likelier than this one is kept.

    Example:
        >>> frames = np.log([[0.1, 0.9], [0.5, 0.5]])
        >>> heard = ForwardVariables(frames)
        >>> heard.extend([1])
        >>> heard.following().round(3).tolist()  # the end; the symbol again has no blank between
        [1.0, 0.0]
    """

    def __init__(
        self, log_probs: Array, blank: int = 0, *, within: float = 60.0, sure: float = 1.0
    ) -> None:
        log_probs = np.maximum(np.asarray(log_probs, np.float64), LEAST_LOG)
        if sure < 1:
            silent = log_probs[:, blank] > np.log(sure)
            again = np.zeros(len(silent), bool)
            again[1:] = silent[1:] & silent[:-1]
            log_probs = log_probs[~again]
        self._log_probs, self._blank, self._within = log_probs, blank, within
        self._probs = np.exp(log_probs)
        self._sums: dict[int, Array] = {}
        self.symbols: list[int] = []
        silence = self._sum(blank)
        nothing = np.full(len(silence), -np.inf)
        self._behind = [self._trimmed(0, silence, nothing)]

    def __len__(self) -> int:
        return len(self.symbols)

    def crop(self, length: int) -> None:
        """Forget the symbols from `length` on."""
        del self.symbols[length:], self._behind[length + 1 :]

    def extend(self, symbols: Sequence[int]) -> None:
        """The text goes on with these."""
        for symbol in symbols:
            self._behind.append(self._followed_by(symbol))
            self.symbols.append(symbol)

    def say(self, kept: int, symbols: Sequence[int]) -> None:
        """Behind its first `kept` symbols the text is this; what it shares is not done again."""
        for symbol in symbols:
            if kept >= len(self.symbols) or self.symbols[kept] != symbol:
                break
            kept += 1
            symbols = symbols[1:]
        self.crop(kept)
        self.extend(symbols)

    def following(self) -> Array:
        """The next symbol's distribution `[S]`; in the blank's place that nothing follows."""
        at = self._behind[-1]
        probs = self._probs[at.start : at.start + len(at.enter)]
        most = max(at.enter.max(), -1e300)  # of a text that can't be there nothing is left
        mass: Array = np.exp(at.enter[: len(probs)] - most) @ probs
        if self.symbols:
            last = self.symbols[-1]
            mass[last] = np.exp(at.b[: len(probs)] - most) @ probs[:, last]
        whole = at.start + len(at.enter) > len(self._probs)
        mass[self._blank] = np.exp(at.enter[-1] - most) if whole else 0.0
        total = mass.sum()
        return mass / total if total > 0 else mass

    def _sum(self, symbol: int) -> Array:
        """Log-probability that the first t frames all say a symbol, `[T + 1]`."""
        if symbol not in self._sums:
            logs = self._log_probs[:, symbol]
            self._sums[symbol] = np.concatenate(([0.0], np.cumsum(logs)))
        return self._sums[symbol]

    def _followed_by(self, symbol: int) -> _Variables:
        at = self._behind[-1]
        repeated = bool(self.symbols) and self.symbols[-1] == symbol
        end = min(at.start + len(at.b) + REACH, len(self._probs) + 1)
        enter = np.full(end - at.start, -np.inf)
        enter[: len(at.b)] = at.b if repeated else at.enter
        n = _accumulated(enter, self._sum(symbol)[at.start : end])
        b = _accumulated(n, self._sum(self._blank)[at.start : end])
        return self._trimmed(at.start, b, n)

    def _trimmed(self, start: int, b: Array, n: Array) -> _Variables:
        enter = np.logaddexp(b, n)
        matters = np.flatnonzero(enter > enter.max() - self._within)
        if not len(matters):  # nothing of it is possible: everything ends here
            return _Variables(start, b, n, enter)
        first, last = int(matters[0]), int(matters[-1]) + 1
        return _Variables(start + first, b[first:last], n[first:last], enter[first:last])


def _accumulated(enter: Array, sums: Array) -> Array:
    """x[t] = p[t] · (x[t - 1] + enter[t - 1]) in logarithms, nothing at first; `sums` are of p."""
    inner = np.logaddexp.accumulate((enter - sums)[:-1])
    out = np.full(len(enter), -np.inf)
    out[1:] = inner + sums[1:]
    return out
