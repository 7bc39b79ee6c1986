"""Whether weights are still what something was made of, by their bytes.

Nothing else tells: versions and addresses stay the same under fused optimisers, `.data`, and
whoever writes through memory that is shared.
"""

from __future__ import annotations

from typing import Any

import torch
import xxhash
from torch import Tensor


def digest(*weights: Tensor) -> int:
    """Of the bytes of weights, in their order; two that differ agree by a chance of 2^-64.

    Reads everything once, as fast as memory gives it (on another device it is copied first).

    Example:
        >>> weight = torch.zeros(3, 2)
        >>> before = digest(weight)
        >>> weight.data[2, 1] = 1e-30
        >>> before == digest(weight), before == digest(torch.zeros(3, 2))
        (False, True)
    """
    found = xxhash.xxh3_64()
    for weight in weights:
        rows = weight.detach().contiguous().cpu()
        content: Any = rows.view(torch.uint8).numpy()
        found.update(content)
    return found.intdigest()
