"""What every loaded model offers: the target, its drafter, and a `with` block around them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from mmspec.errors import OptionError
from mmspec.modalities.base.speculative_decoder import Draft


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
R = TypeVar("R")


class Loaded(ABC, Generic[C, R]):
    """A target with a kind of drafter, loaded once and used for many inputs.

    Attributes:
        task: the name of its room, see `registry.TASKS`.

    Args:
        target: the checkpoint.
        draft: the kind of drafter.
    """

    task: ClassVar[str]

    def __init__(self, target: C, draft: Draft) -> None:
        self.checkpoint, self.draft = target, draft
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

    @abstractmethod
    def outcomes(
        self, requests: Iterable[Mapping[str, Any]], batch: int
    ) -> Iterator[tuple[int, R | Exception]]:
        """Several requests side by side, each with options of its own, as they are done."""

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
