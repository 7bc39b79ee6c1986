"""Which tokens of a window are certain to stay while it is being decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mmspec.factorizations import WhisperSteps


class StableTokens:
    """A window's tokens, said one by one as soon as nothing can take them back.

    With timestamps, what follows a window's last pair of times may be decoded again in the next
    go, so it is certain only once the window is over. Where the whole window may be decoded
    again, nothing is certain before that.

    Args:
        steps: the descriptor.
        ends: tokens that end an output and are no part of it.
        say: called with every token as soon as it is certain.
        holds: whether everything waits for the window's end.
        pad: the padding id, where there is one.
    """

    def __init__(
        self,
        steps: WhisperSteps,
        ends: frozenset[int],
        say: Callable[[int], None],
        holds: bool = False,
        pad: int | None = None,
    ) -> None:
        self.ids: list[int] = []
        self.end: int | None = None
        self._steps, self._ends, self._say, self._holds = steps, ends, say, holds
        self._said, self._had_pair, self._pad = 0, False, pad

    @property
    def emitted(self) -> list[int]:
        """Every token, the end included."""
        return self.ids if self.end is None else [*self.ids, self.end]

    def add(self, tokens: Sequence[int]) -> None:
        """Tokens that a round has committed."""
        for token in tokens:
            if token in self._ends:
                self.end = token
                continue  # it is the last one
            self.ids.append(token)
            self._holds |= token == self._pad  # what follows may go with it, see `close`
            pair = len(self.ids) > 1 and all(map(self._steps.is_timestamp, self.ids[-2:]))
            self._had_pair |= pair
            if not self._holds and (pair or not self._had_pair):
                self.settle(len(self.ids))

    def close(self) -> None:
        """The window has ended, so what looks like padding goes.

        Where the last token is a pad, `generate` takes away as many tokens as pads were said.
        """
        if self.end is None and self.ids and self.ids[-1] == self._pad:
            del self.ids[-self.ids.count(self.ids[-1]) :]

    def settle(self, count: int) -> None:
        """The first `count` tokens are certain."""
        for token in self.ids[self._said : count]:
            self._say(token)
        self._said = max(self._said, count)
