"""Qwen2-VL: native resolution; rows and columns of an image are positions of their own (M-RoPE)."""

from mmspec.modalities.vlm.family import Family


class Qwen2VL(Family):
    """Qwen2-VL."""

    model_types = ("qwen2_vl",)
    model_class = "Qwen2VLForConditionalGeneration"
    towers = ("model.visual",)


FAMILY = Qwen2VL()
