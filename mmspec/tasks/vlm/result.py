"""What a description is; it is made where images are decoded."""

from __future__ import annotations

from mmspec.modalities.vlm.result import Description as Description
