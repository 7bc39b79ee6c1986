"""Qwen2-VL."""

from mmspec.modalities.vlm.grid import GridFamily


class Qwen2VL(GridFamily):
    """Qwen2-VL."""

    model_types = ("qwen2_vl",)
    model_class = "Qwen2VLForConditionalGeneration"


FAMILY = Qwen2VL()
