"""InternVL: tiles and a view of the whole, each pooled to the same number of positions."""

from mmspec.modalities.vlm.family import Family


class InternVL(Family):
    """InternVL."""

    model_types = ("internvl",)
    model_class = "InternVLForConditionalGeneration"


FAMILY = InternVL()
