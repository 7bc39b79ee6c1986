"""Qwen2-Audio: sound of up to 30 seconds, as long in the prompt as it is in time."""

from mmspec.modalities.vlm.family import Family


class Qwen2Audio(Family):
    """Qwen2-Audio."""

    model_types = ("qwen2_audio",)
    model_class = "Qwen2AudioForConditionalGeneration"
    placeholders = ("audio_token_id",)
    towers = ("model.audio_tower",)
    hears = True


FAMILY = Qwen2Audio()
