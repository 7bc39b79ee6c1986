"""Idefics 3: a picture in rows and columns of tiles, then the whole."""

from mmspec.modalities.vlm.family import Family


class Idefics3(Family):
    """Idefics 3."""

    model_types = ("idefics3",)
    model_class = "Idefics3ForConditionalGeneration"
    placeholders = ("image_token_id",)
    towers = ("model.vision_model",)


FAMILY = Idefics3()
