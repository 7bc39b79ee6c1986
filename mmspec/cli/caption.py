"""`mmspec caption`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mmspec.cli.groups import Batch, argument, grouped
from mmspec.cli.settings import LookOutput
from mmspec.errors import OptionError
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.tasks.settings import LookingSettings


@grouped
def caption(
    *images: Annotated[
        Path,
        argument("IMAGE", "Images: png, jpeg, webp, tiff, gif or bmp, any size.", required=True),
    ],
    models: LookingSettings,
    decoding: VisionRequest,
    output: LookOutput,
    batch: Batch = 1,
) -> int:
    """Say what is on images, one line each.

    The text is exactly what the target would have written without a drafter;
    a drafter only decides how soon it comes. An image that can't be used costs
    one line on standard error, an empty line here, and exit code 2 at the end.

    With nothing downloaded:
      mmspec caption *.png -t sample -d sample
    A question instead:
      mmspec caption photo.jpg -t DIR -d ngram --prompt "How many people?"
    """
    from mmspec.cli.looking import CaptionRun

    if models.draft.partition(":")[0] == "hypothesis" and models.hypothesis_file is None:
        raise OptionError(f"--draft: found {models.draft!r}, expected hypothesis:FILE")
    return CaptionRun(images, models, output, decoding, batch).go()
