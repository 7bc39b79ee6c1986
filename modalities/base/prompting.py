"""From images and an instruction to what `generate` takes, through the checkpoint's own processor.

Which words a family wants, and whether it wants any, its adapter says (`Family.instructions`,
`Family.inputs`); what is alike is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from mmspec.compat import quiet
from mmspec.errors import InputError, ModelError, OptionError

if TYPE_CHECKING:
    from mmspec.modalities.base.checkpoint import Checkpoint

INSTRUCTIONS: Mapping[str, str | None] = {
    "caption": "Describe the image.",
    "read": "Read the text.",
}
"""What a model is told that can be told anything."""

NO_WORDS: Mapping[str, str | None] = {"caption": None, "read": None}
"""For models that do one thing, and aren't told which."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """What is wanted of images.

    Attributes:
        task: "caption", "read" or "answer".
        text: in the caller's words; None: in those that the model was trained with.
    """

    task: str
    text: str | None = None


def inputs_of(
    checkpoint: Checkpoint, images: Sequence[Image.Image], instruction: Instruction
) -> dict[str, Any]:
    """What `model.generate` takes, for one prompt.

    Args:
        checkpoint: with its processor.
        images: upright, in RGB.
        instruction: what is wanted of them.

    Returns:
        Tensors of one row, on the model's device and in its dtype.

    Raises:
        ModelError: there is no processor, or it leaves the images out of the prompt.
        OptionError: an instruction that this model doesn't take, or that holds a placeholder.
        InputError: images that this model doesn't take.
    """
    family, processor = checkpoint.family, checkpoint.processor
    if processor is None:
        raise ModelError(
            "a model object comes without the processor that prepares images: give mmspec.load "
            "its processor= too, or call mmspec.generate(model, inputs)"
        )
    _check_number(len(images), family.most_images)
    text = _words(checkpoint, instruction)
    try:
        with quiet():
            made = family.inputs(processor, list(images), text)
    except Exception as error:  # a zoo; what it says is about these images and this text
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"the model's processor refuses this: {reason}") from error
    _check_positions(checkpoint, made)
    return _as_the_model_is(made, checkpoint.model)


def chat(processor: Any, images: list[Image.Image], text: str | None) -> Mapping[str, Any]:
    """One turn of a conversation: the images, then the text, in the checkpoint's own template."""
    template = getattr(processor, "chat_template", None)
    template = template or getattr(processor.tokenizer, "chat_template", None)
    if template is None:
        return beside(processor, images, text)
    content: list[dict[str, str]] = [{"type": "image"} for _ in images]
    if text:
        content.append({"type": "text", "text": text})
    turn = [{"role": "user", "content": content}]
    if isinstance(template, Mapping):
        template = template.get("default", next(iter(template.values())))
    said = processor.apply_chat_template(
        turn, chat_template=template, add_generation_prompt=True, tokenize=False
    )
    begins = processor.tokenizer.bos_token
    once = {"add_special_tokens": False} if begins and said.startswith(begins) else {}
    return processor(text=[said], images=[images], return_tensors="pt", **once)


def beside(
    processor: Any, images: list[Image.Image], text: str | None, between: str = "\n"
) -> Mapping[str, Any]:
    """A placeholder for each image, then the text: for models that hold no conversations."""
    place = getattr(processor, "image_token", None) or ""
    told = between.join(part for part in (place * len(images), text) if part)
    return processor(text=[told], images=[images], return_tensors="pt")


def with_text(processor: Any, images: list[Image.Image], text: str | None) -> Mapping[str, Any]:
    """The text as it is: the processor itself puts the image before it, or has a way of its own."""
    words = {} if text is None else {"text": text}
    return processor(images=images, **words, return_tensors="pt")


def _check_number(given: int, most: int | None) -> None:
    if given == 0:
        raise InputError("found no image, expected at least one")
    if most is not None and given > most:
        raise InputError(f"found {given} images, expected {most}: this model looks at no more")


def _words(checkpoint: Checkpoint, instruction: Instruction) -> str | None:
    """The text that the model is told.

    Raises:
        OptionError: see `inputs_of`.
    """
    family, text = checkpoint.family, instruction.text
    kind = checkpoint.model.config.model_type
    if text is None:
        if instruction.task not in family.instructions:
            known = " or ".join(family.instructions) or "nothing"
            raise OptionError(f"{kind} isn't made to {instruction.task}: expected {known}")
        return family.instructions[instruction.task]
    if not family.takes_text:
        raise OptionError(f"{kind} takes no instruction of yours: it does the one thing it learned")
    _check_unicode(text)
    if not text.strip():
        raise OptionError("found an empty prompt, expected words")
    names = (f"{medium}_token" for medium in ("image", "video", "audio"))
    held = [getattr(checkpoint.processor, name, None) for name in names]
    placeholder = next((token for token in held if token and token in text), None)
    if placeholder is None:
        ids = checkpoint.tokenizer(text, add_special_tokens=False)["input_ids"]
        token = next((token for token in ids if token in family.reserved(checkpoint.model)), None)
        placeholder = None if token is None else checkpoint.tokenizer.decode([token])
    if placeholder is not None:
        raise OptionError(
            f"found {placeholder!r} in the prompt, which stands for an image: expected words; "
            "images are given beside them"
        )
    return text


def _check_unicode(text: Any) -> None:
    """Raise where a prompt is no text, or one with bytes in it that a shell could not decode."""
    if not isinstance(text, str):
        raise OptionError(f"prompt: found {type(text).__name__}, expected words")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OptionError(f"prompt: found {text!r}, expected Unicode text") from None


def _check_positions(checkpoint: Checkpoint, made: Mapping[str, Any]) -> None:
    """Raise where images were given and the prompt has no place for them.

    Raises:
        ModelError: says whose fault it is.
    """
    reserved = checkpoint.family.reserved(checkpoint.model)
    ids = made.get("input_ids")
    if ids is None or not reserved:
        return
    if not any(token in reserved for token in ids[0].tolist()):
        raise ModelError(
            "the checkpoint's chat template leaves the image out of the prompt: expected a "
            "placeholder for it; is this the processor that belongs to the model?"
        )


def _as_the_model_is(made: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """The tensors on the model's device and in its dtype; what training alone needs left out."""
    inputs: dict[str, Any] = {}
    for name, value in made.items():
        if isinstance(value, torch.Tensor):
            dtype = model.dtype if value.is_floating_point() else value.dtype
            value = value.to(model.device, dtype)
        if value is not None and name != "labels":
            inputs[name] = value
    return inputs
