"""Processors and criteria of the caller's where several requests are to have their own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase


def copies_of(objects: Sequence[Any]) -> list[Any]:
    """Objects of the same memory as the given ones, and none in common with them.

    Models and tokenizers that they refer to stay the same, and so does an object that can't be
    copied (one that holds a lock or a file).

    Example:
        >>> counted = [[1, 2]]
        >>> twins = copies_of(counted)
        >>> twins == counted, twins[0] is counted[0]
        (True, False)
    """
    held = [value for one in objects for value in getattr(one, "__dict__", {}).values()]
    memo = by_reference(held)
    return [_copied(one, memo) for one in objects]


def by_reference(values: Iterable[Any]) -> dict[int, Any]:
    """Models and tokenizers among some values, as `copy.deepcopy` is told not to copy them."""
    kinds = (nn.Module, PreTrainedTokenizerBase)
    return {id(value): value for value in values if isinstance(value, kinds)}


def _copied(one: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(one, memo)
    except Exception:  # any class may refuse to be copied, in its own way
        return one


def with_copies(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `generate` for one of several requests: with processors and criteria of its own.

    Those of one request may share a memory with each other, so they are copied together.
    """
    both = ("logits_processor", "stopping_criteria")
    names = [name for name in both if isinstance(options.get(name), list | tuple)]
    twins = iter(copies_of([one for name in names for one in options[name]]))
    return {**options, **{name: [next(twins) for _ in options[name]] for name in names}}
