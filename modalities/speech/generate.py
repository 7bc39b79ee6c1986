"""What a model's own `generate` would return, with the codes decoded here."""

from __future__ import annotations

from typing import Any

from mmspec.compat import quiet
from mmspec.engine import Sampling, run_alone
from mmspec.errors import OptionError
from mmspec.modalities.speech.contract import CodesRequest
from mmspec.modalities.speech.family import FrameFamily
from mmspec.modalities.speech.preparation import shadow


def generated(asked: CodesRequest) -> tuple[Any, Sampling]:
    """Decode a request, and let the model's own `generate` make of the codes what it makes of its.

    It prepares once more for that; its loop is given the ids instead of decoding.

    Returns:
        (what `generate` returns, how the codes were drawn).

    Raises:
        OptionError: a family whose `generate` keeps more than ids in its loop.
    """
    checkpoint = asked.pair.checkpoint
    family = checkpoint.family
    if not isinstance(family, FrameFamily):
        raise OptionError(f"{family.title}: its generate has several loops, use mmspec.load")
    said = run_alone(family.say(asked))
    ids = family.library_ids(said.sequence).to(checkpoint.device)
    # Our loop returns ids, so no output object may be expected of it.
    options = {**asked.options, "return_dict_in_generate": False}
    with quiet():
        output = shadow(checkpoint.model, lambda prepared: ids).generate(**asked.inputs, **options)
    return output, said.sampling
