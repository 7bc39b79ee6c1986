"""What may be asked of a model that looks."""

from __future__ import annotations

from mmspec.modalities.vlm.request import VisionOptions as VisionOptions
from mmspec.modalities.vlm.request import VisionRequest as VisionRequest
