"""LLaVA: a CLIP tower and a projector in front of a causal language model."""

from mmspec.modalities.vlm.family import Family


class Llava(Family):
    """LLaVA 1.5 and its like."""

    model_types = ("llava",)
    model_class = "LlavaForConditionalGeneration"


FAMILY = Llava()
