"""What a transcription is; it is made where recordings are decoded."""

from __future__ import annotations

from mmspec.modalities.whisper.result import Chunk as Chunk
from mmspec.modalities.whisper.result import SpokenSegment as SpokenSegment
from mmspec.modalities.whisper.result import Transcription as Transcription
