"""Whether a module does what its class says, so that something faster may stand in for it.

A fast pass computes what the library's classes are known to compute. Somebody may have put a layer
of their own there, a `forward` on one object or on the class, hooks, parametrizations, weights of
another kind: then only the module itself knows what it does. So nothing is taken for plain that
isn't proven to be.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

HOOKS = ("_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")

Part = tuple[str, nn.Module, type[nn.Module]]
"""A submodule that is stood in for: its name, itself, and the class that it has to be of."""


def oddity(module: nn.Module, kind: type[nn.Module], stand_in: type | None = None) -> str | None:
    """Why a module may do something else than its class says; None where it can't.

    Args:
        module: the one that is stood in for.
        kind: the class whose computation is known.
        stand_in: a class of ours whose methods may stand in for the module's own.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> oddity(layer, nn.Linear), oddity(nn.Identity(), nn.Linear)
        (None, 'is of class Identity')
        >>> layer.forward = lambda x: x
        >>> oddity(layer, nn.Linear)
        'has a forward of its own'
    """
    if type(module) is not kind:
        return f"is of class {type(module).__name__}"
    if any(vars(module)[name] for name in HOOKS) or any(
        vars(torch_module)[name] for name in GLOBAL_HOOKS
    ):
        return "carries hooks"
    for name, value in vars(module).items():
        own = callable(getattr(kind, name, None))
        if own and (stand_in is None or type(getattr(value, "__self__", None)) is not stand_in):
            return f"has a {name} of its own"
    if not _defined_here(kind, "forward") or not _defined_here(kind, "__call__"):
        return f"has a class whose forward was replaced: {kind.__name__}"
    for name, weight in [*module._parameters.items(), *module._buffers.items()]:
        if weight is not None and type(weight) not in (nn.Parameter, Tensor):
            return f"has a {name} of type {type(weight).__name__}"
    return None


def _defined_here(kind: type, name: str) -> bool:
    """Whether a method is still the one that the class, or one of its bases, was written with."""
    owner = next(base for base in kind.__mro__ if name in vars(base))
    method: Any = vars(owner)[name]
    return (method.__module__, method.__qualname__) in {
        (owner.__module__, f"{owner.__qualname__}.{name}"),
        # torch gives its modules' call under another name
        (nn.Module.__module__, "Module._wrapped_call_impl"),
    }


def first_oddity(parts: Iterable[Part]) -> str | None:
    """Why a pass may not stand in for these; None where it may."""
    for name, module, kind in parts:
        found = "is in training mode" if module.training else oddity(module, kind)
        if found is not None:
            return f"{name} {found}"
    return None
