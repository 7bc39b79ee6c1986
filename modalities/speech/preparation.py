"""What transformers' `generate` prepares before it decodes a model's codes, taken over as it is.

Models of codec tokens bring a `generate` of their own each: it prepares conditioning and delays,
calls a decoding loop and makes sound of what comes back. A shadow of the model, which shares every
weight, runs that `generate` with another loop in place of the library's.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from transformers import UnbatchedClassifierFreeGuidanceLogitsProcessor

from mmspec.compat import pop_cache
from mmspec.errors import ModelError, OptionError
from mmspec.modalities.base.preparation import Prepared

Loop = Callable[[Prepared], Tensor]
"""Decodes what was prepared: the ids that the library's own loop would return."""


class _Enough(Exception):
    """The loop was reached: nothing behind it is to run."""


def prepare(model: Any, inputs: Mapping[str, Any], **options: Any) -> Prepared:
    """What `model.generate(**inputs, **options)` would decode.

    Nothing is decoded, no codec runs on what comes out, and the model isn't written to. Encoders of
    the conditioning do run.

    Args:
        model: a model with codec tokens, or a part of one that has a `generate`.
        inputs: what its processor made.
        options: of `generate`.

    Raises:
        ModelError: its `generate` decodes in its own way.
        OptionError: a scale of guidance that it isn't guided by.
        ValueError: whatever `generate` refuses.
    """
    captured: list[Prepared] = []

    def capture(prepared: Prepared) -> Tensor:
        captured.append(prepared)
        raise _Enough

    try:
        shadow(model, capture).generate(**inputs, **options)
    except _Enough:
        check_guidance(captured[0])
        return captured[0]
    raise ModelError(f"{type(model).__name__}.generate takes no decoding loop of another's")


def check_guidance(prepared: Prepared) -> None:
    """Raise where guidance would read ids of codes as a text: no `generate` gets through that.

    Raises:
        OptionError: names the scale.
    """
    kinds = map(type, prepared.processors or ())
    if UnbatchedClassifierFreeGuidanceLogitsProcessor in kinds:
        config: Any = prepared.config
        raise OptionError(
            f"guidance_scale={config.guidance_scale}: {type(prepared.model).__name__} isn't guided "
            "by this scale; 1 is no guidance"
        )


def shadow(model: Any, loop: Loop) -> Any:
    """A model that shares every weight with the given one; its `generate` decodes by `loop`.

    Settings that a `generate` changes on its way are copies, those of the parts included.
    """
    twin = _with_own_settings(model)
    twin._modules = {
        name: _with_own_settings(part) if _has_settings(part) else part
        for name, part in model._modules.items()
    }
    kind: Any = type(model)
    twin.__class__ = _shadow_class(kind)
    twin.__dict__.update(_loop=loop, _original=model)
    return twin


def _has_settings(part: Any) -> bool:
    return getattr(part, "generation_config", None) is not None


def _with_own_settings(module: Any) -> Any:
    twin = copy.copy(module)
    twin.__dict__["generation_config"] = copy.deepcopy(module.generation_config)
    return twin


@functools.cache
def _shadow_class(kind: Any) -> Any:
    """A class like `kind` whose loop is its instance's `_loop`."""

    def sample(
        self: Any,
        input_ids: Tensor,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        generation_config: Any = None,
        synced_gpus: bool = False,
        streamer: Any = None,
        **inputs: Any,
    ) -> Tensor:
        pop_cache(inputs)
        return self._loop(
            Prepared(
                self._original,
                input_ids,
                logits_processor,
                stopping_criteria,
                generation_config,
                inputs,
            )
        )

    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The library's; the caller's lists stay as they are, where it appends to what it is given.

        A list with guidance in it already would be guided twice at the next call.
        """
        lists = ("logits_processor", "stopping_criteria")
        own = {name: copy.copy(kwargs[name]) for name in lists if name in kwargs}
        return kind.generate(self, *args, **{**kwargs, **own})

    def prefill(self: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: what a `generate` has read ahead, no loop takes from it."""

    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__qualname__": kind.__name__}
    own = {"generate": generate, "_prefill": prefill}
    loops = dict.fromkeys(("_sample", "_beam_search", "_assisted_decoding"), sample)
    return type(kind.__name__, (kind,), {**names, **loops, **own})
