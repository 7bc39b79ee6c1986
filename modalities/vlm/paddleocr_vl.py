"""PaddleOCR-VL: Qwen2-VL's positions before an ERNIE decoder."""

from collections.abc import Mapping

from mmspec.modalities.vlm.grid import GridFamily


class PaddleOcrVL(GridFamily):
    """PaddleOCR-VL."""

    model_types = ("paddleocr_vl",)
    model_class = "PaddleOCRVLForConditionalGeneration"
    instructions: Mapping[str, str | None] = {"read": "OCR:"}


FAMILY = PaddleOcrVL()
