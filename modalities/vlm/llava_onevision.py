"""LLaVA-OneVision: a picture whole and in tiles of its own resolution, packed line by line."""

from mmspec.modalities.vlm.family import Family


class LlavaOnevision(Family):
    """LLaVA-OneVision."""

    model_types = ("llava_onevision",)
    model_class = "LlavaOnevisionForConditionalGeneration"


FAMILY = LlavaOnevision()
