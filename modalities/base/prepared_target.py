"""What a family opens for a request."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from mmspec.target import Target


class PreparedTarget(Target, Protocol):
    """A target that has yet to read its prompt."""

    def read_prompt(self) -> Tensor:
        """Read the prompt and freeze it; the distribution behind it `[1, V]`."""
        ...

    def early_exit(self, layers: int) -> Target:
        """The first `layers` layers under the same head, over this target's own memory.

        Raises:
            ModelError: the decoder has no more layers than that.
        """
        ...
