"""SmolVLM: Idefics 3 with smaller tiles and a smaller decoder."""

from mmspec.modalities.vlm.idefics3 import Idefics3


class SmolVLM(Idefics3):
    """SmolVLM and SmolVLM2."""

    model_types = ("smolvlm",)
    model_class = "SmolVLMForConditionalGeneration"


FAMILY = SmolVLM()
