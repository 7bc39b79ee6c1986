"""Loading a checkpoint's processor: what turns images and text into a model's inputs.

Films aren't looked at, so whatever only they would need is left out. Among that is torchvision:
without it images are resized by Pillow, and no family needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from mmspec.compat import quiet
from mmspec.errors import ModelError

FILMS = "video_processor"


def load_processor(source: str, config: Any, **options: Any) -> Any:
    """A checkpoint's processor.

    Args:
        source: a directory or a hub id.
        config: the model's configuration.
        **options: as `from_pretrained` takes them.

    Raises:
        ModelError: the checkpoint says how its images are prepared, but the package is missing.
        Exception: whatever transformers raises where files are missing or broken.
    """
    kind = PROCESSOR_MAPPING.get(type(config), None)
    with quiet():
        try:
            if kind is not None and FILMS in kind.get_attributes():
                return _without_films(kind).from_pretrained(source, **options)
            processor = AutoProcessor.from_pretrained(source, **options)
            if hasattr(processor, "image_processor") or hasattr(processor, "feature_extractor"):
                return processor
            # Some checkpoints name no processor, and half of one would have been taken for it.
            return ImageAndText(
                AutoImageProcessor.from_pretrained(source, **options),
                AutoTokenizer.from_pretrained(source, **options),
            )
        except ImportError as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"its processor needs a package that is missing: {reason}") from error


def _without_films(kind: Any) -> Any:
    """A processor's class without its part for films, which can't be had without torchvision."""

    class Stills(kind):
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in super().get_attributes() if name != FILMS]

        @classmethod
        def from_args_and_dict(cls, args: Sequence[Any], processor_dict: Any, **more: Any) -> Any:
            known = {name: value for name, value in processor_dict.items() if name != FILMS}
            return super().from_args_and_dict([*args, None], known, **more)

    Stills.__name__ = Stills.__qualname__ = kind.__name__  # what it saves is loaded by that name
    Stills.__module__ = kind.__module__
    return Stills


class ImageAndText:
    """An image processor and a tokenizer side by side, called as a processor is."""

    def __init__(self, image_processor: Any, tokenizer: Any) -> None:
        self.image_processor, self.tokenizer = image_processor, tokenizer

    def __call__(self, images: Any = None, text: Any = None, **options: Any) -> dict[str, Any]:
        """What either makes of its part."""
        made: dict[str, Any] = {}
        if images is not None:
            made |= self.image_processor(images, **options)
        if text is not None:
            made |= self.tokenizer(text, **options)
        return made
