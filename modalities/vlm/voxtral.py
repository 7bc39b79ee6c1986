"""Voxtral: sound in windows of 30 seconds, each a fixed number of positions."""

from mmspec.modalities.vlm.family import Family


class Voxtral(Family):
    """Voxtral."""

    model_types = ("voxtral",)
    model_class = "VoxtralForConditionalGeneration"
    placeholders = ("audio_token_id",)
    towers = ("model.audio_tower",)
    hears = True


FAMILY = Voxtral()
