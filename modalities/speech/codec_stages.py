"""The layers of a codec's decoder, taking their input piece by piece.

A stage gives out whatever its input so far settles and keeps what later output still needs. Every
input goes through it once. What the pieces give, joined, is what the layer gives of the whole, but
for the rounding of sums in another order: no context is guessed, none is cut. A layer that looks
ahead just gives out later, as a symmetric convolution does, or one that begins with a reflection of
what comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mmspec.errors import ModelError

PAD_MODES = ("constant", "replicate", "reflect")


class Stage(Protocol):
    """A layer, or several, over time: the last axis of its tensors."""

    def push(self, x: Tensor | None, last: bool) -> Tensor | None:
        """Take a piece, give out what is settled by now.

        Args:
            x: the next inputs `[..., n]`; None for none.
            last: nothing follows.

        Returns:
            The next outputs; None for none.
        """
        ...


class Pointwise:
    """What looks at one moment at a time."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self._function = function

    def push(self, x: Tensor | None, last: bool) -> Tensor | None:
        """As much as came."""
        return None if x is None else self._function(x)


class Remembering:
    """What carries a state of its own from moment to moment."""

    def __init__(self, function: Callable[[Tensor, Any], tuple[Tensor, Any]]) -> None:
        self._function, self._state = function, None

    def push(self, x: Tensor | None, last: bool) -> Tensor | None:
        """As much as came."""
        if x is None:
            return None
        y, self._state = self._function(x, self._state)
        return y


class Chain:
    """One stage behind the other."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def push(self, x: Tensor | None, last: bool) -> Tensor | None:
        """What the last one gives."""
        for stage in self._stages:
            x = stage.push(x, last)
        return x


class Sum:
    """Stages side by side, added up; a slower one is waited for."""

    def __init__(self, *branches: Stage) -> None:
        self._branches = branches
        self._waiting: list[Tensor | None] = [None] * len(branches)

    def push(self, x: Tensor | None, last: bool) -> Tensor | None:
        """As much as all of them have."""
        found = [
            _joined(waiting, branch.push(x, last))
            for waiting, branch in zip(self._waiting, self._branches, strict=True)
        ]
        ready = [part for part in found if part is not None]
        count = min(part.shape[-1] for part in ready) if len(ready) == len(found) else 0
        self._waiting = [None if part is None else part[..., count:] for part in found]
        if not count:
            return None
        return reduce(torch.add, (part[..., :count] for part in ready))


class Convolution:
    """A convolution of stride 1, padded at both ends of time.

    Args:
        conv: whatever it pads by itself is left out.
        left: padding before the first moment.
        right: padding behind the last one.
        mode: one of `PAD_MODES`.
    """

    def __init__(self, conv: nn.Conv1d, left: int, right: int, mode: str) -> None:
        self._conv, self._left, self._right, self._mode = conv, left, right, mode
        self._reach = (conv.kernel_size[0] - 1) * conv.dilation[0]
        self._held: Tensor | None = None
        self._begun = False

    def push(self, x: Tensor | None, last: bool) -> Tensor | None:
        """What has all of its inputs."""
        held = _joined(self._held, x)
        if held is None:
            return None
        if not self._begun:
            enough = max(self._left, self._right) if self._mode == "reflect" else 0
            self._begun = last or held.shape[-1] > enough
            if self._begun:
                held = self._padded(held, self._left, self._right if last else 0)
        elif last:
            held = self._padded(held, 0, self._right)
        count = held.shape[-1] - self._reach if self._begun else 0
        self._held = held[..., max(count, 0) :]
        if count <= 0:
            return None
        own = int(self._conv.padding[0])
        return self._conv(held)[..., own : own + count]

    def _padded(self, x: Tensor, left: int, right: int) -> Tensor:
        """A reflection of too short an input has silence to its right, as the libraries have it."""
        lacking = 0
        if self._mode == "reflect":
            lacking = max(0, max(left, right) - x.shape[-1] + 1)
        padded = pad(pad(x, (0, lacking)), (left, right), self._mode)
        return padded[..., : padded.shape[-1] - lacking]


class Transposed:
    """A transposed convolution, cut at both ends of time.

    Args:
        conv: what it cuts by itself counts as cut.
        left: outputs cut before the first moment.
        right: outputs cut behind the last one.
    """

    def __init__(self, conv: nn.ConvTranspose1d, left: int, right: int) -> None:
        self._conv, self._left, self._right = conv, left, right
        self._kernel, self._stride = conv.kernel_size[0], conv.stride[0]
        self._own = int(conv.padding[0])
        self._before = math.ceil(self._kernel / self._stride) - 1
        self._held: Tensor | None = None

    def push(self, x: Tensor | None, last: bool) -> Tensor | None:
        """What no later input adds to."""
        if x is None and (not last or self._held is None):
            return None
        held = _joined(self._held, x)
        if held is None:
            return None
        known = 0 if self._held is None else self._held.shape[-1]
        begin = self._left if self._held is None else known * self._stride
        end = held.shape[-1] * self._stride
        if last:
            end += self._kernel - self._stride - self._right
        self._held = held[..., max(0, held.shape[-1] - self._before) :]
        if end <= begin:
            return None
        return self._conv(held)[..., begin - self._own : end - self._own]


def stage_of(module: nn.Module) -> Stage:
    """A codec's layer as a stage, with a state of its own.

    Raises:
        ModelError: a layer that needs all of time at once, or that nobody here knows.
    """
    kind = type(module)
    if kind.__name__ in _RULES:
        return _RULES[kind.__name__](module)
    if kind.__module__ == "torch.nn.modules.activation":
        return Pointwise(module)
    raise ModelError(f"a codec with a layer {kind.__name__} can't be decoded piece by piece")


def _joined(held: Tensor | None, x: Tensor | None) -> Tensor | None:
    if held is None or x is None:
        return x if held is None else held
    return torch.cat([held, x], dim=-1)


def _chain(modules: Any) -> Stage:
    return Chain([stage_of(module) for module in modules])


def _plain(module: Any) -> tuple[Any, int]:
    """The convolution inside, and by how much its kernel is wider than its stride."""
    inner = getattr(module, "convtr", None) or module.conv
    if not isinstance(inner, nn.Conv1d | nn.ConvTranspose1d):  # the encodec package wraps it twice
        module, inner = inner, getattr(inner, "convtr", None) or inner.conv
    norm = getattr(module, "norm", None)
    if norm is not None and not isinstance(norm, nn.Identity):
        name = type(norm).__name__
        raise ModelError(
            f"a codec with {name} can't be decoded piece by piece: it sees all of time"
        )
    return inner, (inner.kernel_size[0] - 1) * inner.dilation[0] + 1 - inner.stride[0]


def _convolution(module: Any) -> Stage:
    conv, width = _plain(module)
    if module.pad_mode not in PAD_MODES:
        raise ModelError(
            f"a codec that pads by {module.pad_mode!r} can't be decoded piece by piece"
        )
    right = 0 if module.causal else width // 2
    return Convolution(conv, width - right, right, module.pad_mode)


def _transposed(module: Any) -> Stage:
    conv, width = _plain(module)
    right = math.ceil(width * module.trim_right_ratio) if module.causal else width // 2
    return Transposed(conv, width - right, right)


def _symmetric(conv: Any) -> Stage:
    return Convolution(conv, conv.padding[0], conv.padding[0], "constant")


def _symmetric_transposed(conv: Any) -> Stage:
    return Transposed(conv, conv.padding[0], conv.padding[0])


def _recurrent(module: Any) -> Stage:
    def step(x: Tensor, state: Any) -> tuple[Tensor, Any]:
        moments = x.permute(2, 0, 1)
        y, state = module.lstm(moments, state)
        return (y + moments if getattr(module, "skip", True) else y).permute(1, 2, 0), state

    return Remembering(step)


def _residual(module: Any) -> Stage:
    return Sum(stage_of(module.shortcut), _chain(module.block))


def _dac_residual(unit: Any) -> Stage:
    return Sum(Pointwise(nn.Identity()), _chain([unit.snake1, unit.conv1, unit.snake2, unit.conv2]))


def _dac_block(block: Any) -> Stage:
    tokens = [block.res_unit1, block.res_unit2, block.res_unit3]
    return _chain([block.snake1, block.conv_t1, *tokens])


_RULES: dict[str, Callable[[Any], Stage]] = {
    "Identity": Pointwise,
    "Conv1d": _symmetric,
    "ConvTranspose1d": _symmetric_transposed,
    "EncodecDecoder": lambda decoder: _chain(decoder.layers),
    "EncodecConv1d": _convolution,
    "EncodecConvTranspose1d": _transposed,
    "EncodecLSTM": _recurrent,
    "EncodecResnetBlock": _residual,
    "MimiDecoder": lambda decoder: _chain(decoder.layers),
    "MimiConv1d": _convolution,
    "MimiConvTranspose1d": _transposed,
    "MimiResnetBlock": _residual,
    "SEANetDecoder": lambda decoder: _chain(decoder.model),
    "SConv1d": _convolution,
    "SConvTranspose1d": _transposed,
    "SLSTM": _recurrent,
    "SEANetResnetBlock": _residual,
    "DacDecoder": lambda decoder: _chain(
        [decoder.conv1, *decoder.block, decoder.snake1, decoder.conv2, decoder.tanh]
    ),
    "DacDecoderBlock": _dac_block,
    "DacResidualUnit": _dac_residual,
    "Snake1d": Pointwise,
}
"""By the class of a layer: of transformers' codecs and of the `encodec` package."""
