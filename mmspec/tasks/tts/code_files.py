"""What speaking leaves behind: a sound file and, beside it, the codes that it was made of.

A file of codes is an `.npz` without pickled objects: `codes` (int32, frames × codebooks) and
whatever else is known about them, each under its own name.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import soundfile

from mmspec.errors import InputError
from mmspec.modalities.media.inputs import check_readable, one_line, refuse
from mmspec.modalities.speech.grids import checked_codes
from mmspec.output.formats import SOUND_FORMATS, write_atomic

EXPECTED = "codes (.npz or .npy), or a sound file with its codes beside it"
_BEGINNINGS = (b"PK", b"\x93NUMPY")
"""Of an .npz, which is a zip file, and of an .npy."""
UNREADABLE = (
    *(OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error),
    RuntimeError,  # an encrypted archive, or a way to compress that nobody knows
    *(SyntaxError, TokenError),  # an array's header is read as Python
)
"""What reading an archive or an array raises where it is damaged."""


@dataclass(frozen=True, eq=False)
class CodeFile:
    """Codes, and what is known about them.

    Attributes:
        codes: int32 `[frames, codebooks]`.
        gaps: float32 `[frames, codebooks]`: how far apart the target's two best scores were where
            each code was decided; NaN where nobody knows.
        decided_at: int32 `[frames, codebooks]`: which decision each code was, codes that were
            decided together having the same number (`mmspec.compare.code_parity.when_decided`).
        family: the model type that wrote them.
        rate_hz: frames per second.
        codebook_sizes: how many codes each codebook has.
    """

    codes: np.ndarray
    gaps: np.ndarray | None = None
    decided_at: np.ndarray | None = None
    family: str | None = None
    rate_hz: float | None = None
    codebook_sizes: tuple[int, ...] | None = None


def sidecar(path: Path) -> Path:
    """Where the codes of a sound file lie.

    Example:
        >>> sidecar(Path("said/speech.wav")).as_posix()
        'said/speech.codes.npz'
    """
    return path.with_suffix(".codes.npz")


def write_codes(
    path: Path | str,
    grid: Any,
    *,
    gaps: Any = None,
    decided_at: Any = None,
    family: str | None = None,
    rate_hz: float | None = None,
    codebook_sizes: Sequence[int] | None = None,
) -> Path:
    """Write codes, and what is known about them, to an `.npz`.

    Args:
        path: of the `.npz`, or of the sound file whose codes they are.
        grid: codes, frames × codebooks.
        gaps: see `CodeFile`, likewise the others.

    Returns:
        Where they are.

    Raises:
        InputError: what is given is no grid of codes, a fact doesn't fit it, or the place can't be
            written to.
    """
    path = _place(Path(path))
    codes = checked_codes(grid, codebook_sizes).astype(np.int32)
    facts: dict[str, Any] = {"codes": codes}
    for name, values, kind in (("gaps", gaps, np.float32), ("decided_at", decided_at, np.int32)):
        if values is not None:
            facts[name] = _beside(np.asarray(values), codes, name, "", kind)
    if family is not None:
        facts["family"] = np.array(family)
    if rate_hz is not None:
        facts["rate_hz"] = np.array(float(rate_hz))
    if codebook_sizes is not None:
        facts["codebook_sizes"] = np.array(codebook_sizes, np.int32)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **facts)
    write_atomic(path, buffer.getvalue())
    return path


def read_codes(path: Path | str) -> CodeFile:
    """Read codes from an `.npz`, an `.npy` or the sidecar of a sound file.

    An array `[frames]` is one codebook. Nothing in the file is run.

    Raises:
        InputError: names the file, what was found and what was expected.
    """
    path = _place(Path(path))
    name = str(path)
    check_readable(path, name, EXPECTED)
    try:
        with path.open("rb") as file:
            if not file.read(6).startswith(_BEGINNINGS):
                refuse(name, "another kind of file", EXPECTED)
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            found = {"codes": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except UNREADABLE:
        refuse(name, "arrays that can't be read (damaged, or pickled objects)", EXPECTED)
    if "codes" not in found:
        held = ", ".join(sorted(found)[:5]) or "nothing"
        refuse(name, f"arrays without one called codes ({held})", EXPECTED)
    return _checked(found, name)


def write_sound(path: Path | str, samples: np.ndarray, sample_rate_hz: int) -> None:
    """Write a waveform: 16 bits per sample, louder than full scale clipped.

    Args:
        path: its suffix says which format: wav, flac or ogg.
        samples: float `[n]` or `[channels, n]`, full scale is 1.
        sample_rate_hz: of the samples.

    Raises:
        InputError: another suffix, samples that aren't finite, or a place that can't be written to.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in SOUND_FORMATS:
        refuse(str(path), f"the suffix {path.suffix!r}", f"one of {', '.join(SOUND_FORMATS)}")
    samples = np.asarray(samples)
    if not np.isfinite(samples).all():
        refuse(str(path), "NaN or infinite samples", "finite ones (is the codec broken?)")
    buffer = io.BytesIO()
    soundfile.write(buffer, samples.T, sample_rate_hz, format=kind.upper())
    write_atomic(path, buffer.getvalue())


def _place(path: Path) -> Path:
    return sidecar(path) if path.suffix.lower().removeprefix(".") in SOUND_FORMATS else path


def _checked(found: dict[str, np.ndarray], name: str) -> CodeFile:
    codes, sizes = found["codes"], found.get("codebook_sizes")
    if codes.ndim == 1:
        codes = codes[:, None]
    try:
        known = None if sizes is None else tuple(int(size) for size in sizes)
        codes = checked_codes(codes, known).astype(np.int32)
        rate_hz = found.get("rate_hz")
        rate = None if rate_hz is None else float(rate_hz.item())
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        refuse(name, f"codebook_sizes or rate_hz of another kind ({one_line(error)})", "numbers")
    beside = {
        key: _beside(found[key], codes, key, f"{name}: ", kind)
        for key, kind in (("gaps", np.float32), ("decided_at", np.int32))
        if key in found
    }
    family = str(found["family"]) if "family" in found else None
    return CodeFile(codes, family=family, rate_hz=rate, codebook_sizes=known, **beside)


def _beside(values: np.ndarray, codes: np.ndarray, key: str, name: str, kind: type) -> np.ndarray:
    """An array that says something about every code."""
    if values.ndim == 1 and codes.shape[1] == 1:
        values = values[:, None]
    if values.shape != codes.shape:
        shapes = ["x".join(map(str, shape)) for shape in (values.shape, codes.shape)]
        raise InputError(f"{name}{key} of shape {shapes[0]}, the codes have {shapes[1]}")
    if values.dtype.kind not in ("iuf" if kind is np.float32 else "iu"):
        raise InputError(f"{name}{key} of type {values.dtype}, expected numbers")
    if kind is np.int32 and values.size and not _fits(values):
        raise InputError(f"{name}{key} has numbers beyond 32 bits")
    return values.astype(kind)


def _fits(values: np.ndarray) -> bool:
    """Whether whole numbers are the same in 32 bits: cut off, they would be others."""
    known = np.iinfo(np.int32)
    return int(values.min()) >= known.min and int(values.max()) <= known.max
