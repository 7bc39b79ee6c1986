"""The page of a run: what `--report` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mmspec.output.formats import write_atomic
from mmspec.page import Decoded, Failure, PageData, render_page


def write_page(
    place: Path, settings: Mapping[str, Any], entries: Sequence[Decoded | Failure]
) -> None:
    """Write a page of these.

    Raises:
        InputError: the place can't be written to.
    """
    write_atomic(place, render_page(PageData(settings, tuple(entries))))


class Entries(Protocol):
    """What a page shows of a run's inputs, as a task room collects it.

    Attributes:
        made: entries so far.
    """

    made: list[Decoded | Failure]


class RunPage:
    """The page of a run, written at its end.

    Args:
        place: the file.
        settings: of the run.
        entries: what it shows.
    """

    def __init__(
        self,
        place: Path,
        settings: Mapping[str, Any],
        entries: Entries,
    ) -> None:
        self._place, self._settings, self.entries = place, settings, entries

    def write(self) -> None:
        """Write what there is.

        Raises:
            InputError: the place can't be written to.
        """
        write_page(self._place, self._settings, self.entries.made)
