"""What may be asked of a recogniser."""

from __future__ import annotations

from mmspec.modalities.whisper.request import TranscriptionOptions as TranscriptionOptions
from mmspec.modalities.whisper.request import TranscriptionRequest as TranscriptionRequest
