"""Guesses of how a frame of codes goes on once its first code is known.

They come before the depth decoder is asked, so they cost next to nothing, and decide nothing: a
right one saves passes of it (`mmspec.modalities.speech.depth`).

Legend: K codebooks, V codes in a codebook, D width of the backbone.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from mmspec.prefix import Frame


class Guess(Protocol):
    """Says how a frame might go on."""

    def __call__(self, hidden: Tensor, codes: Frame, previous: Frame | None) -> Frame:
        """The codes that may follow in a frame.

        Args:
            hidden: the backbone's state at this frame, `[D]`.
            codes: what is decided of it, at least one code.
            previous: the frame before; None where there is none.

        Returns:
            Up to `K - len(codes)` codes.
        """
        ...


def repeat_previous(hidden: Tensor, codes: Frame, previous: Frame | None) -> Frame:
    """Guesses that a frame that begins as the one before it also goes on like it: as in silence.

    Example:
        >>> import torch
        >>> repeat_previous(torch.zeros(4), (7, 0), (7, 0, 2, 3))
        (2, 3)
        >>> repeat_previous(torch.zeros(4), (7, 1), (7, 0, 2, 3))
        ()
    """
    known = len(codes)
    return () if previous is None or previous[:known] != codes else previous[known:]
