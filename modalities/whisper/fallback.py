"""Whether a window's transcript is taken: temperature fallback and the no-speech rule.

The rules and their order are those of transformers' `generate_with_fallback`. One case it leaves
undefined: a no-speech threshold without one for the log-probability decides by itself here, as in
Whisper's reference implementation.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from mmspec.errors import OptionError

STEADY = 0.5
"""From this temperature on, a window's text isn't shown to the next one."""


class Verdict(Enum):
    """What becomes of a window's transcript."""

    KEEP = "keep"
    AGAIN = "decode again, warmer"
    SILENCE = "nobody spoke"


@dataclass(frozen=True, slots=True)
class Fallback:
    """When a window's transcript is thrown away.

    Attributes:
        temperatures: tried in turn; the last one's transcript is taken as it is.
        compression_ratio: a higher ratio (bytes of ids over the same compressed) is a loop.
        logprob: a lower mean log-probability is a failure.
        no_speech: above it, together with a low log-probability, the window is skipped.
    """

    temperatures: tuple[float, ...] = (0.0,)
    compression_ratio: float | None = None
    logprob: float | None = None
    no_speech: float | None = None

    @classmethod
    def of(cls, temperature: float | Iterable[float] | None, config: Any, **given: Any) -> Fallback:
        """What was asked for, else what the generation config says.

        Raises:
            OptionError: no temperature, or one or a threshold that is no number.
        """
        several = isinstance(temperature, Iterable) and not isinstance(temperature, str)
        wanted: list[Any] = list(temperature) if several else [temperature]  # type: ignore[arg-type]
        temperatures = [0.0 if one is None else one for one in wanted]
        for one in temperatures or ["none at all"]:
            number = isinstance(one, Real) and not isinstance(one, bool)
            if not (number and 0 <= one < math.inf):
                raise OptionError(f"temperature must be 0 or more, got {one}")

        def threshold(name: str) -> float | None:
            name = f"{name}_threshold"
            wanted = given[name] if given[name] is not None else getattr(config, name, None)
            if not (wanted is None or isinstance(wanted, Real)):
                raise OptionError(f"{name}: found {wanted!r}, expected a number")
            return None if wanted is None else float(wanted)

        return cls(
            tuple(map(float, temperatures)),
            threshold("compression_ratio"),
            threshold("logprob"),
            threshold("no_speech"),
        )

    @property
    def may_reject(self) -> bool:
        """Whether tokens of a window can still be thrown away when it is decoded."""
        again = self.compression_ratio is not None or self.logprob is not None
        return self.no_speech is not None or (again and len(self.temperatures) > 1)

    def judge(
        self, tokens: Sequence[int], logprob: float, no_speech: float, vocab_size: int
    ) -> Verdict:
        """The verdict on one try.

        Args:
            tokens: what was emitted, the end included.
            logprob: mean log-probability of those tokens.
            no_speech: probability that nobody speaks in the window.
            vocab_size: of the model's config.
        """
        unlikely = self.logprob is not None and logprob < self.logprob
        quiet = self.no_speech is not None and no_speech > self.no_speech
        if quiet and (unlikely or self.logprob is None):
            return Verdict.SILENCE
        loops = (
            self.compression_ratio is not None
            and compression_ratio(tokens, vocab_size) > self.compression_ratio
        )
        return Verdict.AGAIN if unlikely or loops else Verdict.KEEP


class Likelihood:
    """Adds up the log-probabilities of emitted tokens, from the rows that they were drawn from.

    Args:
        temperature: that the rows were divided by; 0 where they weren't.
    """

    def __init__(self, temperature: float) -> None:
        self._factor = temperature if temperature > 0 else 1.0
        self._sum, self._count = 0.0, 0

    def add(self, rows: Sequence[Tensor], tokens: Sequence[int]) -> None:
        """Processed rows `[1, V]` and the tokens that came of them."""
        if tokens:
            distributions = (torch.cat(list(rows)) * self._factor).float().log_softmax(-1)
            ids = torch.tensor(list(tokens), device=distributions.device)
            self._sum += float(distributions.gather(1, ids[:, None]).sum())
            self._count += len(tokens)

    @property
    def mean(self) -> float:
        """Mean log-probability of a token."""
        return self._sum / max(self._count, 1)


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> float:
    """Bytes of the ids over the same bytes compressed: high where they repeat themselves.

    Example:
        >>> compression_ratio([7, 8, 9], 50_000) < 1 < compression_ratio([7, 8, 9] * 30, 50_000)
        True
    """
    width = int(math.log2(vocab_size) / 8) + 1
    content = b"".join(token.to_bytes(width, "little") for token in tokens)
    return len(content) / len(zlib.compress(content))


def no_speech_probability(row: Tensor, no_timestamps: int) -> float:
    """Probability of `<|nospeech|>`, which stands before `<|notimestamps|>`, in a row `[V]`.

    Args:
        row: raw logits behind the start mark.
        no_timestamps: id of `<|notimestamps|>`.
    """
    return float(row.float().softmax(-1)[no_timestamps - 1])
