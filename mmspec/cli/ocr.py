"""`mmspec ocr`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from mmspec.cli.groups import Batch, argument, grouped
from mmspec.cli.settings import LookOutput, PageOptions
from mmspec.errors import OptionError
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.tasks.settings import LookingSettings


@grouped
def ocr(
    *documents: Annotated[
        Path, argument("FILE", "Images, or documents: PDF, TIFF.", required=True)
    ],
    models: LookingSettings,
    pages: PageOptions,
    decoding: VisionRequest,
    output: LookOutput,
    batch: Batch = 1,
) -> int:
    """Read what is written on images and documents, page by page.

    The text is exactly what the target would have written without a drafter.
    Pages are set apart by a form feed. A page that can't be used costs one line
    on standard error, an empty page here, and exit code 2 at the end.

    With nothing downloaded:
      mmspec ocr *.png -t sample -d sample
    What another reader found as the draft:
      mmspec ocr scan.pdf -t DIR -d hypothesis --reading tesseract
    """
    from mmspec.cli.looking import ReadRun

    draft, reading = models.draft, pages.reading
    if models.hypothesis_file is not None:
        raise OptionError(
            f"--draft: found {draft!r}, expected hypothesis, and the file behind --reading"
        )
    if reading != "auto" and "hypothesis" not in draft.split("+"):
        raise OptionError(f"--reading {reading}: only --draft hypothesis drafts with a reading")
    request = replace(decoding, task="read")
    return ReadRun(documents, models, output, request, batch, pages=pages).go()
