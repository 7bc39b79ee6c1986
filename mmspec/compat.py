"""Where transformers' releases differ, in our own words. The only file that asks.

`transformers` 5.24 renamed the decoder's `past_key_values` argument to `cache`; both names are
in use among the releases that mmspec supports.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

CACHE_NAMES = ("cache", "past_key_values")


@functools.cache
def _argument_names(forward: Any) -> frozenset[str]:
    return frozenset(inspect.signature(forward).parameters)


def cache_argument(module_type: type, cache: object) -> dict[str, object]:
    """The keyword under which `module_type.forward` takes its key/value cache, with `cache` in it.

    Raises:
        TypeError: the module takes no cache under any name that we know.
    """
    names = _argument_names(module_type.forward)  # type: ignore[attr-defined]
    for name in CACHE_NAMES:
        if name in names:
            return {name: cache}
    raise TypeError(f"{module_type.__name__}.forward takes no cache: expected one of {CACHE_NAMES}")


def pop_cache(model_kwargs: dict[str, Any]) -> None:
    """Drop the cache that transformers prepared: mmspec brings its own state."""
    for name in CACHE_NAMES:
        model_kwargs.pop(name, None)
