"""Drafts from a CTC output, read anew at every round on condition that what is committed is true.

A CTC model names a symbol for every frame of its input in one pass. Its transcript taken as a fixed
text is lost at the first mistake. Here the committed text is put through the model's own forward
variables, so that each correction of the target moves the draft to its place at once, and the draft
is what most likely follows, symbol by symbol, for as long as the model is sure of it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal, deterministic
from mmspec.proposals.forward_variables import ForwardVariables

LEAST = 0.1
"""Probability of a whole draft, by the model's own account, below which it isn't carried on."""

FARTHEST = 96
"""Symbols of a draft at most."""

CLASSES = (0.35, 0.6, 0.8, 0.9, 0.97)
"""Probabilities of the first token that part drafts whose acceptance is learned apart."""

PATIENCE, LONGEST_REST = 4, 16
"""Rounds in a row without a draft of ours after which we don't listen for some; at most for so
many, twice as many each time. To listen is cheap, but not where it never pays."""

MARKED = 0.9
"""How often special tokens that are due (`Spelling.due`) are what the target says."""


class Spelling(Protocol):
    """What the target's tokens mean as text."""

    def text(self, token: int) -> str:
        """What a token adds to the text; "" for a special token or a part of a character."""
        ...

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text as the target would write it, nothing before or behind it."""
        ...

    def due(self, emitted: Sequence[int]) -> list[int]:
        """Special tokens that come before any further text, given what was emitted."""
        ...

    def end(self, emitted: Sequence[int]) -> list[int]:
        """What ends an output whose text is complete, as far as it can be known."""
        ...


class Alphabet:
    """The symbols of a CTC model as text, and a text in these symbols.

    What the model can't write is left out of a text; case is given up where it has only one.

    Args:
        texts: of each symbol; "" for the blank and for special symbols.

    Example:
        >>> letters = Alphabet(["", " ", "A", "B"])
        >>> letters.symbols("b, a?"), letters.folded
        ([3, 1, 2], True)
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._symbols = {text: symbol for symbol, text in enumerate(texts) if text}
        self._longest = max(map(len, self._symbols), default=0)
        letters = "".join(self._symbols)
        upper, lower = letters != letters.lower(), letters != letters.upper()
        self.folded = upper != lower
        self._fold = str.upper if upper and not lower else str.lower if self.folded else str
        # Pieces that begin words carry the space with them, also at the start of a text.
        self.begins_with_space = any(t.startswith(" ") and len(t) > 1 for t in self._symbols)
        self._known = set(letters)

    def symbols(self, text: str) -> list[int]:
        """A text's symbols, the longest that fit; spaces in a row count once."""
        kept = "".join(character for character in self._fold(text) if character in self._known)
        kept, at, found = re.sub(" +", " ", kept), 0, []
        while at < len(kept):
            for length in range(min(self._longest, len(kept) - at), 0, -1):
                symbol = self._symbols.get(kept[at : at + length])
                if symbol is not None:
                    found.append(symbol)
                    break
            at += length
        return found


class _Draft(NamedTuple):
    """Drafted tokens, and how sure the model is of each given those before it."""

    tokens: list[int]
    sure: list[float]


class CtcDrafter(Drafter):
    """Proposes what a CTC model hears behind the committed text.

    Args:
        listen: gives the model's output, nothing said yet; called when first asked.
        alphabet: its symbols.
        spelling: the target's tokens.
        least: probability of a whole draft below which it isn't carried on.
        blank: the blank's index.
        name: as in reports.
        conditioning: "shared" where the model reads the target's states, "own" elsewhere.
    """

    cost_prior = 0.02

    def __init__(
        self,
        listen: Callable[[], ForwardVariables],
        alphabet: Alphabet,
        spelling: Spelling,
        *,
        least: float = LEAST,
        blank: int = 0,
        name: str = "ctc",
        conditioning: str = "shared",
    ) -> None:
        self.name, self.conditioning = name, conditioning
        self._listen, self._alphabet, self._spelling = listen, alphabet, spelling
        self._least, self._blank = least, blank
        self._read: int | None = None  # how much of the prefix was read
        self._word: list[int] = []  # tokens of the word that may not be over
        self._before = 0  # symbols of the words before it
        self._draft: _Draft | None = None
        self._wanted, self._declined, self._resting = False, 0, 0

    def outlook(self, prefix: Prefix) -> Outlook:
        """As sure as the model is of each token."""
        if self._resting:
            return Outlook("resting", 0.0, 0.0, 0)
        tokens, sure = self._drafted(prefix)
        if not tokens:
            return Outlook("nothing heard", 0.0, 0.0, 0)
        first, later = sure[0], sure[1:]
        rest = math.exp(sum(map(math.log, later)) / len(later)) if later else first
        grade = sum(first >= bound for bound in CLASSES)
        context = f"heard {grade}/{len(CLASSES)}"
        return Outlook(context, first, rest, len(tokens), later=tuple(later))

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """What most likely follows, as far as the model is sure of it."""
        self._wanted = True
        return deterministic(self._drafted(prefix).tokens[:limit])

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """What is committed is the new condition."""
        self._draft = None
        if self._wanted:
            self._declined, self._wanted = 0, False
        elif self._resting:
            self._resting -= 1
        else:
            self._declined += 1
            if self._declined >= PATIENCE:
                self._resting = min(2 ** (self._declined - PATIENCE), LONGEST_REST)

    @cached_property
    def _heard(self) -> ForwardVariables:
        return self._listen()

    def _drafted(self, prefix: Prefix) -> _Draft:
        if self._draft is None:
            self._condition(prefix)
            self._draft = self._continued(prefix)
        return self._draft

    def _condition(self, prefix: Prefix) -> None:
        """Put what was committed since through the forward variables."""
        read = prefix.prompt_length if self._read is None else self._read
        for token in prefix.ids[read:]:
            text = self._spelling.text(token)
            if text.startswith(" ") and self._word:
                self._before += len(self._said(self._word, ended=True))
                self._heard.say(self._before, [])
                self._word = []
            if text:
                self._word.append(token)
                self._heard.say(self._before, self._said(self._word))
        self._read = len(prefix)
        self._heard.say(self._before, self._said(self._word))  # nothing of an earlier draft is left

    def _said(self, word: Sequence[int], ended: bool = False) -> list[int]:
        text = "".join(map(self._spelling.text, word))
        if not self._before and not self._alphabet.begins_with_space:
            text = text.lstrip(" ")
        symbols = self._alphabet.symbols(text)
        while ended and symbols and self._alphabet.texts[symbols[-1]] == " ":
            symbols.pop()  # nothing was left of the word
        return symbols

    def _continued(self, prefix: Prefix) -> _Draft:
        written, sure, whole, ended = self._following()
        if ended and not written:
            tokens = self._spelling.end(prefix.emitted)
            return _Draft(tokens, [*sure, *[1.0] * len(tokens)][: len(tokens)])
        due = self._spelling.due(prefix.emitted)
        opens = not self._before and not self._word
        text = self._cased(written)
        if opens:
            text = " " + text.lstrip(" ")
        tokens = self._tokens(text)
        if not whole:
            tokens = tokens[:-1]  # half a word is written in other tokens than the whole
        spoken = self._by_token(tokens, sure, len(text) - len(written))
        if ended:
            end = self._spelling.end([*prefix.emitted, *due, *tokens])
            tokens, spoken = [*tokens, *end], [*spoken, *sure[len(written) :]][: len(tokens + end)]
        return _Draft([*due, *tokens], [*[MARKED] * len(due), *spoken])

    def _following(self) -> tuple[str, list[float], bool, bool]:
        """What most likely follows, symbol by symbol.

        Returns:
            The text; the probability of each character given those before it, and of the end where
            it ends; whether it stops where a word does; whether nothing follows.
        """
        texts, whole = self._alphabet.texts, 1.0
        written, sure = "", list[float]()
        for _ in range(FARTHEST):
            distribution = self._heard.following()
            symbol = int(np.argmax(distribution))
            probability = float(distribution[symbol])
            whole *= probability
            if symbol == self._blank:
                sure = [*sure, probability] if whole >= self._least else sure
                return written, sure, True, whole >= self._least
            text = texts[symbol]
            if whole < self._least:
                break
            self._heard.extend([symbol])
            written += text
            sure += [probability, *[1.0] * (len(text) - 1)][: len(text)]
        spoken = written.rstrip(" ")
        at_end = len(spoken) < len(written) or not texts[symbol][:1].isalnum()
        return spoken, sure[: len(spoken)], at_end, False

    def _cased(self, text: str) -> str:
        """Text of an alphabet of one case, with the capitals that are sure to be there."""
        if not self._alphabet.folded:
            return text
        text, before = text.lower(), "".join(map(self._spelling.text, self._word)).rstrip()
        if before.endswith((".", "?", "!")) or not (self._before or self._word):
            at = len(text) - len(text.lstrip())
            text = text[:at] + text[at : at + 1].upper() + text[at + 1 :]
        return re.sub(r"(?<= )i(?=[ '])", "I", text)

    def _tokens(self, text: str) -> list[int]:
        """The text's tokens behind the word that may not be over."""
        word = self._word
        joined = self._spelling.tokens("".join(map(self._spelling.text, word)) + text)
        same = joined[: len(word)] == word
        return joined[len(word) :] if same else self._spelling.tokens(text)

    def _by_token(self, tokens: Sequence[int], sure: Sequence[float], added: int) -> list[float]:
        """The probability of each token: of its characters, of which the text got `added` first."""
        lengths = [len(self._spelling.text(token)) for token in tokens]
        ends = [max(0, end - added) for end in itertools.accumulate(lengths)]
        return [math.prod(sure[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
