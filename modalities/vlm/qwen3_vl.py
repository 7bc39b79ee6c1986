"""Qwen3-VL: features of several depths of the tower go into the decoder's first layers.

They do so where the prompt is read only, so blocks behind it know nothing of them.
"""

from mmspec.modalities.vlm.grid import GridFamily


class Qwen3VL(GridFamily):
    """Qwen3-VL."""

    model_types = ("qwen3_vl",)
    model_class = "Qwen3VLForConditionalGeneration"


FAMILY = Qwen3VL()
