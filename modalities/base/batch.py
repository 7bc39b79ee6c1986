"""A batch as a processor makes it, taken apart into the inputs of its rows.

Processors pack the images of all rows into one tensor, in the prompts' order, and pad the prompts.
How many positions an image takes says which row it belongs to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmspec.errors import InputError

if TYPE_CHECKING:
    from mmspec.modalities.base.family import Family

ENCODED = ("inputs_embeds", "mm_encoder_outputs")
"""What is given in place of an image that was encoded already."""


@dataclass(frozen=True, eq=False)
class Medium:
    """An image, a tile of one, a video or a sound, as a model takes it.

    Attributes:
        stands: the id that stands for it in a prompt.
        places: how many positions it takes there.
        tensors: its part of the inputs.
    """

    stands: int
    places: int
    tensors: Mapping[str, Tensor]


def split(family: Family, model: Any, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inputs of each row, without padding in front; a single row's are left as they are.

    Raises:
        InputError: a prompt without ids, one with more or fewer positions for media than those
            that were given take, or an input that can't be taken apart.
    """
    ids = inputs.get("input_ids")
    if ids is None:
        raise InputError("inputs: expected input_ids, as the model's processor makes them")
    if not isinstance(ids, Tensor) or ids.dim() != 2 or len(ids) == 0:
        shape = "x".join(map(str, ids.shape)) if isinstance(ids, Tensor) else type(ids).__name__
        raise InputError(
            f"input_ids: found {shape}, expected a tensor of rows and positions, as the model's "
            'processor makes it with return_tensors="pt"'
        )
    rows = len(ids)
    if any(inputs.get(name) is not None for name in ENCODED):
        if rows > 1:
            raise InputError("images that were encoded already: pass the rows one by one")
        return [dict(inputs)]
    theirs = _dealt_out(family, model, ids, family.media(model, inputs))
    if rows == 1:
        return [dict(inputs)]
    mask, stands = inputs.get("attention_mask"), torch.tensor(sorted(family.reserved(model)))
    kept = torch.ones_like(ids) if mask is None else mask
    there = [behind_padding(kept[row], ids[row], stands.to(ids)) for row in range(rows)]
    return [
        {
            name: _part(name, value, ids.shape, row, there[row])
            for name, value in inputs.items()
            if name not in family.media_inputs
        }
        | family.packed([medium.tensors for medium in theirs[row]])
        for row in range(rows)
    ]


def behind_padding(mask: Tensor, ids: Tensor, stands: Tensor) -> Tensor:
    """Which positions of a prompt are left without its padding.

    Padding in front changes nothing that follows. Any other is read in its place, and one over an
    image's place has the image: these stay.

    Args:
        mask: 0 where the prompt is padded `[P]`.
        ids: the prompt `[P]`.
        stands: ids that stand for images or sounds.

    Returns:
        Bools `[P]`.

    Example:
        >>> ids, image = torch.tensor([0, 9, 5]), torch.tensor([9])
        >>> behind_padding(torch.tensor([0, 1, 1]), ids, image).tolist()
        [False, True, True]
        >>> behind_padding(torch.tensor([0, 0, 1]), ids, image).tolist()
        [True, True, True]
    """
    there = mask != 0
    in_front = bool((there.long().diff() >= 0).all() & there[-1:].all())
    over_media = bool(torch.isin(ids[~there], stands).any())
    return there if in_front and not over_media else torch.ones_like(there)


def _dealt_out(
    family: Family, model: Any, ids: Tensor, media: Sequence[Medium]
) -> list[list[Medium]]:
    """The media of each row: each has its places, and every place is taken."""
    noun, rows = "sound" if family.hears else "image", len(ids)
    theirs: list[list[Medium]] = [[] for _ in range(rows)]
    for stands in sorted(family.reserved(model)):
        left = deque(medium for medium in media if medium.stands == stands)
        for row in range(rows):
            wanted = int((ids[row] == stands).sum())
            taken: list[Medium] = []
            while left and sum(medium.places for medium in taken) < wanted:
                taken.append(left.popleft())
            found = sum(medium.places for medium in taken)
            if found != wanted:
                raise InputError(
                    f"{f'row {row}: ' if rows > 1 else ''}{wanted} positions of the prompt stand "
                    f"for {noun}s (id {stands}), what was given takes {found or 'none'}: let the "
                    f"model's processor make prompt and {noun}s together"
                )
            theirs[row] += taken
        if left:
            raise InputError(
                f"the prompt has no place (id {stands}) for {len(left)} of {len(media)} {noun}s or "
                f"parts of {noun}s: write the {noun}'s mark there before the processor reads it"
            )
    return theirs


def _part(name: str, value: Any, shape: torch.Size, row: int, there: Tensor) -> Any:
    """One row's part of an input."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor) and value.shape == shape:
        return value[row : row + 1, there]
    raise InputError(
        f"{name}: can't tell which part belongs to which of {shape[0]} rows; pass them one by one"
    )


def joined(media: Sequence[Mapping[str, Tensor]], axis: int = 0) -> dict[str, Tensor]:
    """Inputs of some media side by side along an axis, by name."""
    names = dict.fromkeys(name for tensors in media for name in tensors)
    return {
        name: torch.cat([tensors[name] for tensors in media if name in tensors], dim=axis)
        for name in names
    }
