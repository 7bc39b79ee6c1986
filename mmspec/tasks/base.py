"""What every loaded model offers, and the way of a request: prepare, decode in rounds, result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from mmspec.engine import Steps, run_batched
from mmspec.errors import OptionError
from mmspec.modalities.base.options import Request
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder


class Described(Protocol):
    """A loaded checkpoint.

    Attributes:
        model: transformers' own object.
        processor: its processor.
        steps: its factorization.
    """

    @property
    def model(self) -> Any: ...  # noqa: D102

    @property
    def processor(self) -> Any: ...  # noqa: D102

    @property
    def steps(self) -> Any: ...  # noqa: D102


C = TypeVar("C", bound=Described)
Q = TypeVar("Q", bound=Request)
R = TypeVar("R")


class Loaded(ABC, Generic[C, Q, R]):
    """A target with a kind of drafter, loaded once and used for many inputs.

    Attributes:
        task: the name of its room, see `registry.TASKS`.

    Args:
        pair: the target with its kind of drafter.
    """

    task: ClassVar[str]

    def __init__(self, pair: SpeculativeDecoder[C]) -> None:
        self._pair, self.checkpoint, self.draft = pair, pair.checkpoint, pair.draft
        self._closed = False

    @property
    def model(self) -> Any:
        """The target, transformers' own object."""
        return self.checkpoint.model

    @property
    def processor(self) -> Any:
        """The target's processor."""
        return self.checkpoint.processor

    @property
    def descriptor(self) -> Any:
        """The target's factorization."""
        return self.checkpoint.steps

    @property
    def draft_name(self) -> str:
        """The kind of drafter, as in reports."""
        return self.draft.name

    def run_request(self, pair: Any, given: Any, request: Q) -> Steps[R]:
        """One request from what is given to its result, the same way for every task.

        Its passes are left to whoever runs them, alone or among those of other requests.

        Raises:
            MMSpecError: an input or option that can't be used, in one line.
        """
        self.check_open()
        prepared = self.prepare(pair, given, request)
        decoded = yield from self.decode(prepared)
        return self.result(given, request, prepared, decoded)

    @abstractmethod
    def prepare(self, pair: Any, given: Any, request: Q) -> Any:
        """What is to be decoded: inputs that were read, and options that were checked."""

    @abstractmethod
    def decode(self, prepared: Any) -> Steps[Any]:
        """Rounds of drafting and verifying, to the end of the output."""

    @abstractmethod
    def result(self, given: Any, request: Q, prepared: Any, decoded: Any) -> R:
        """What the user gets of it."""

    @abstractmethod
    def asked(self, *args: Any, **kwargs: Any) -> tuple[Any, Q]:
        """A method's arguments as (what is given, the request)."""

    def check_among_others(self, request: Q) -> None:
        """Raise where a request can't be decoded beside others.

        Raises:
            OptionError: says why.
        """

    def outcomes(
        self, requests: Iterable[Mapping[str, Any]], batch: int
    ) -> Iterator[tuple[int, R | Exception]]:
        """Several requests side by side, each with options of its own, as they are done.

        Each has processors and criteria of its own: copies of those that are given.

        Args:
            requests: the arguments of `transcribe`, `describe` or `speak` for each, what they are
                about included.
            batch: how many are decoded at a time.

        Yields:
            (number of the request, its result or what it raised).

        Raises:
            OptionError: a batch of less than one.
        """
        check_batch(batch)
        pair = self._pair.for_batch(batch)
        return run_batched((self._among_others(pair, one) for one in requests), batch)

    def _among_others(self, pair: SpeculativeDecoder[C], arguments: Mapping[str, Any]) -> Steps[R]:
        given, request = self.asked(**arguments)
        self.check_among_others(request)
        return self.run_request(pair, given, request.apart)

    def _all(self, requests: Iterable[Mapping[str, Any]], batch: int) -> list[R]:
        """Several requests side by side, in order.

        Raises:
            MMSpecError: the first that failed, once the others are done.
        """
        outcomes = dict(self.outcomes(requests, batch))
        for number in sorted(outcomes):
            if isinstance(failure := outcomes[number], Exception):
                raise failure
        return [outcomes[number] for number in sorted(outcomes)]  # type: ignore[misc]

    def check_open(self) -> None:
        """Raise where this was closed.

        Raises:
            OptionError: it was.
        """
        if self._closed:
            raise OptionError(f"this {type(self).__name__.lower()} is closed: load a new one")

    def close(self) -> None:
        """Nothing is left behind on the models; this can't be used any more."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_batch(batch: int) -> None:
    """Raise where nothing could be decoded side by side.

    Raises:
        OptionError: fewer than one, or no number.
    """
    if not isinstance(batch, Integral) or batch < 1:
        raise OptionError(f"batch: found {batch!r}, expected a whole number, 1 or more")
