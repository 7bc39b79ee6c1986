"""mmspec: exact speculative decoding for multimodal models."""

from mmspec.errors import MMSpecError as MMSpecError

__version__ = "0.1.0"
