"""Which words of a growing recording are certain: those that two hypotheses in a row agree on.

LocalAgreement-2 (Liu, Spanakis and Niehues 2020, "Low-latency sequence-to-sequence speech
recognition and translation by partial hypothesis selection"; Macháček, Dabre and Bojar 2023,
"Turning Whisper into real-time transcription system").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmspec.proposals.hypothesis import alignments


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word of a hypothesis.

    Attributes:
        text: its leading space and its punctuation included.
        ids: the token ids that spell it.
        start_s: when its segment starts, where it is the first word of one; in seconds of the
            stream.
        end_s: when its segment ends, where it is the last word of one that is over.
    """

    text: str
    ids: tuple[int, ...]
    start_s: float | None = None
    end_s: float | None = None

    @property
    def spelling(self) -> str:
        """What is the same about a word however it is written: letters and digits."""
        letters = "".join(filter(str.isalnum, self.text)).casefold()
        return letters or self.text.strip()


class LocalAgreement:
    """Commits words; what was committed is never taken back, whatever is heard later.

    Hypotheses are about the audio in a buffer. Words whose audio has left the buffer are behind it.
    Where a later hypothesis contradicts committed words, they are lined up with it (least edits),
    and only what follows them counts.

    Example:
        >>> def words(text): return [HeardWord(" " + word, ()) for word in text.split()]
        >>> agreement = LocalAgreement()
        >>> agreement.hear(words("he was not."))
        []
        >>> [word.text for word in agreement.hear(words("he was an ill"))]
        [' he', ' was']
        >>> [word.text for word in agreement.hear(words("she was an ill man"))]
        [' an', ' ill']
        >>> "".join(word.text for word in agreement.tentative)
        ' man'
    """

    def __init__(self) -> None:
        self._committed: list[HeardWord] = []
        self._behind = 0
        self._last: list[HeardWord] = []

    @property
    def behind(self) -> Sequence[HeardWord]:
        """Committed words whose audio has left the buffer."""
        return tuple(self._committed[: self._behind])

    @property
    def words(self) -> Sequence[HeardWord]:
        """The last hypothesis, what of it was committed included."""
        return tuple(self._last)

    @property
    def settled(self) -> int:
        """How many words of the last hypothesis are over: the committed ones, as lined up."""
        return self._lined_up(self._last)

    @property
    def tentative(self) -> Sequence[HeardWord]:
        """What the last hypothesis says behind the committed words."""
        return tuple(self._last[self.settled :])

    def hear(self, words: Sequence[HeardWord]) -> list[HeardWord]:
        """A new hypothesis of the buffer; returns the words that this commits."""
        before = self.tentative
        self._last = list(words)
        agreed = []
        for old, new in zip(before, self.tentative, strict=False):
            if old.text != new.text:
                break
            agreed.append(new)
        self._committed += agreed
        return agreed

    def force(self, count: int | None = None) -> list[HeardWord]:
        """Commit the first words of the last hypothesis, None: all; returns those that are new."""
        new = self._last[self.settled : count]
        self._committed += new
        return new

    def leave_behind(self, count: int) -> None:
        """The audio of the last hypothesis' first words has left the buffer."""
        gone = self._last[:count]
        held = self._committed[self._behind :]
        self._behind += len(held) if count >= len(self._last) else _used_up(held, gone)
        self._last = self._last[count:]

    def _lined_up(self, words: Sequence[HeardWord]) -> int:
        return _used_up(words, self._committed[self._behind :])


def _used_up(words: Sequence[HeardWord], by: Sequence[HeardWord]) -> int:
    """How many of the first `words` correspond to `by`."""
    if not words or not by:
        return 0
    numbers: dict[str, int] = {}
    one, other = (
        [numbers.setdefault(word.spelling, len(numbers)) for word in side] for side in (words, by)
    )
    return alignments(one, other, [True] * len(one), 1)[0][0]
