"""Noise as a function of seed, absolute position and token, instead of a stream of draws.

A stream gives other numbers once one more token is drafted. Here a number depends on where it is
used and on nothing else: not on the batch, not on the other positions asked for, not on what was
drawn before. The generator is a keyed hash, two rounds of the SplitMix64 mixer: one turns seed
and position into a key, one turns key and token into bits.

Numbers agree between devices up to the last bits of `log`.
"""

import torch
from torch import Tensor

_MASK_64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
# One tag per use keeps the Gumbel noise of a position independent of its uniform numbers.
_TAG_GUMBEL, _TAG_UNIFORMS, _TAG_SEED = 1, 2, 3
# On a CPU, pieces that stay in the cache are three times as fast as the whole.
_CPU_CELLS_AT_ONCE = 1 << 16


def gumbel(
    seed: int, positions: Tensor, vocab_size: int, device: torch.device | str | None = None
) -> Tensor:
    """Standard Gumbel noise for every token at the given positions.

    The highest of `logits + noise` is a sample of the softmax of `logits`. Float64, because
    float32 sums of scores and noise tie about once in 10^6 tokens, and ties go to the lower id.

    Args:
        seed: Any 64-bit integer, signed or not. Rows that must differ need different seeds; see
            `derive_seed`.
        positions: Absolute positions of the tokens, int64, any shape `[...]`.
        vocab_size: Tokens V.
        device: Where the noise is made; the device of `positions` if None.

    Returns:
        Float64 `[..., V]`, finite, between about -3.6 and 36.8.

    Raises:
        ValueError: `positions` is not int64, `vocab_size` is below 1 or the seed beyond 64 bits.

    Source:
        Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators", figure 1
        (the mixer); Gumbel 1954 (the highest of scores plus noise).

    Example:
        >>> both = gumbel(7, torch.tensor([3, 9]), vocab_size=4)
        >>> torch.equal(both[1], gumbel(7, torch.tensor(9), vocab_size=4))
        True
    """
    return _numbers(seed, _TAG_GUMBEL, positions, ("vocab_size", vocab_size), device)


def uniforms(
    seed: int, positions: Tensor, count: int, device: torch.device | str | None = None
) -> Tensor:
    """Uniform numbers for the given positions, independent of their Gumbel noise.

    Args:
        seed: Any 64-bit integer, signed or not.
        positions: Absolute positions, int64, any shape `[...]`.
        count: Numbers per position.
        device: Where the numbers are made; the device of `positions` if None.

    Returns:
        Float64 `[..., count]`, strictly between 0 and 1.

    Raises:
        ValueError: `positions` is not int64, `count` is below 1 or the seed beyond 64 bits.

    Example:
        >>> uniforms(7, torch.arange(5), count=2).shape
        torch.Size([5, 2])
    """
    return _numbers(seed, _TAG_UNIFORMS, positions, ("count", count), device)


def derive_seed(seed: int, index: int) -> int:
    """Gives row or request `index` its own seed, so that equal positions get other noise.

    Args:
        seed: The seed of the whole run, any 64-bit integer.
        index: Which row, from 0.

    Returns:
        A seed in `0..2**64-1`.

    Raises:
        ValueError: The seed or the index is beyond 64 bits.

    Example:
        >>> derive_seed(7, 0) != derive_seed(7, 1)
        True
    """
    return _mix_int(_mix_int(_as_64_bits("seed", seed), _TAG_SEED), _as_64_bits("index", index))


def _numbers(
    seed: int,
    tag: int,
    positions: Tensor,
    size: tuple[str, int],
    device: torch.device | str | None,
) -> Tensor:
    """Hashes seed, tag, position and index into float64 `[..., size]`."""
    name, count = size
    if positions.dtype != torch.int64:
        raise ValueError(f"positions is {positions.dtype}; expected torch.int64")
    if count < 1:
        raise ValueError(f"{name} is {count}; expected at least 1")
    key = _mix_int(_as_64_bits("seed", seed), tag)
    positions = positions if device is None else positions.to(device)
    row_keys = _mix(positions.reshape(-1) * _signed(_GOLDEN) + _signed(key))
    steps = torch.arange(1, count + 1, device=positions.device) * _signed(_GOLDEN)
    out = torch.empty(row_keys.shape[0], count, dtype=torch.float64, device=positions.device)
    on_cpu = positions.device.type == "cpu"
    rows_at_once = max(1, _CPU_CELLS_AT_ONCE // count) if on_cpu else max(1, row_keys.shape[0])
    finish = _gumbel_from_uniform if tag == _TAG_GUMBEL else _unchanged
    for keys, piece in zip(row_keys.split(rows_at_once), out.split(rows_at_once), strict=True):
        finish(_uniform_from_bits(_mix(keys[:, None] + steps), piece))
    return out.reshape(*positions.shape, count)


def _uniform_from_bits(bits: Tensor, out: Tensor) -> Tensor:
    """Writes (k + 1/2) / 2^52 for the top 52 bits k: exact, and neither 0 nor 1.

    A 53rd bit would make k + 1/2 round, and its highest value would be 1.
    """
    out.copy_(_shifted(bits, 12))
    return out.add_(0.5).mul_(2.0**-52)


def _gumbel_from_uniform(uniform: Tensor) -> Tensor:
    """Replaces u by -log(-log u), in place."""
    return uniform.log_().neg_().log_().neg_()


def _unchanged(uniform: Tensor) -> Tensor:
    return uniform


def _mix(state: Tensor) -> Tensor:
    """Scrambles int64 words in place; products wrap around, as the mixer needs."""
    for distance, factor in _MIX_STEPS:
        state ^= _shifted(state, distance)
        if factor != 1:
            state *= _signed(factor)
    return state


def _shifted(state: Tensor, distance: int) -> Tensor:
    """Shifts right and fills with zeros; torch fills with the sign bit, so that is masked off."""
    return (state >> distance).bitwise_and_((1 << (64 - distance)) - 1)


def _mix_int(seed: int, step: int) -> int:
    """The same mixer for one Python integer: the word `seed + step * golden`, scrambled."""
    state = (seed + step * _GOLDEN) & _MASK_64
    for distance, factor in _MIX_STEPS:
        state = ((state ^ (state >> distance)) * factor) & _MASK_64
    return state


def _signed(word: int) -> int:
    """Reads an unsigned 64-bit word as the signed number with the same bits."""
    return word - (1 << 64) if word >> 63 else word


def _as_64_bits(name: str, given: int) -> int:
    if not -(1 << 63) <= given <= _MASK_64:
        raise ValueError(f"{name} is {given}; expected an integer in -2**63..2**64-1")
    return int(given) & _MASK_64  # NumPy's integers overflow where Python's wrap
