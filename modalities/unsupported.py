"""Why a family has no adapter, as far as transformers' own tables tell."""

from __future__ import annotations

import transformers
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

NOT_YET = "but nobody has written an adapter for it yet"


def why(model_type: str) -> str:
    """The end of a sentence that begins with the family's name.

    Example:
        >>> why("gpt2"), why("mllama_of_the_future")[:22]
        ('reads and writes text only', 'is no family that tran')
    """
    if model_type in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return f"looks and writes, {NOT_YET}"
    if model_type in auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES:
        return f"listens and writes, {NOT_YET}"
    if model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "reads and writes text only"
    if model_type in CONFIG_MAPPING_NAMES:
        return "writes no text, or none that a decoder writes token by token"
    return f"is no family that transformers {transformers.__version__} knows"
