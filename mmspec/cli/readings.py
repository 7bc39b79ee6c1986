"""`--reading`: what another reader found on a page, for the hypothesis drafter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mmspec.cli.descriptions import PAGE_BREAK
from mmspec.errors import InputError
from mmspec.tasks.vlm.ocr import reading_of

READERS = ("auto", "tesseract", "pdf", "none")

Reading = str | tuple[int, ...] | None


class Readings:
    """Where readings come from.

    Args:
        wanted: one of `READERS`, or a file: a text whose pages are set apart by form feeds, in
            the order of all pages; or the JSON of an earlier run.

    Raises:
        InputError: the file can't be read.
    """

    def __init__(self, wanted: str) -> None:
        self._reader = None if wanted == "auto" else wanted
        self._texts: list[str] | None = None
        self._known: dict[tuple[str, int], Reading] | None = None
        if wanted in READERS:
            return
        try:
            content = Path(wanted).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise InputError(
                f"--reading {wanted}: found nothing readable ({reason}), expected "
                f"{', '.join(READERS)} or a file"
            ) from None
        if content.lstrip().startswith("{"):
            self._known = _earlier_run(wanted, content)
        else:
            self._texts = content.split(PAGE_BREAK)

    def of(self, path: Path, page: Any, place: int) -> Reading:
        """What is known of a page, as `Viewer.read` takes it; "" where a file holds none for it.

        Args:
            path: of the document.
            page: as `modalities.documents.pages` yields it.
            place: how many pages there were before, in all documents.
        """
        if self._known is not None:
            return self._known.get((path.name, page.number), "")
        if self._texts is not None:
            return self._texts[place] if place < len(self._texts) else ""
        return reading_of(page, self._reader)


def _earlier_run(file: str, content: str) -> dict[tuple[str, int], Reading]:
    try:
        entries = json.loads(content)["files"]
        return {
            (Path(entry["path"]).name, int(entry.get("page", 1))): str(entry["text"])
            for entry in entries
            if "text" in entry
        }
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise InputError(
            f"--reading {file}: found JSON of another kind, expected what `mmspec ocr --json` "
            "writes"
        ) from None
