"""Qwen2.5-VL: Qwen2-VL with attention in windows in its tower."""

from mmspec.modalities.vlm.grid import GridFamily


class Qwen25VL(GridFamily):
    """Qwen2.5-VL."""

    model_types = ("qwen2_5_vl",)
    model_class = "Qwen2_5_VLForConditionalGeneration"


FAMILY = Qwen25VL()
