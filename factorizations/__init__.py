"""Descriptors: what one autoregressive decision means, and what may be speculated about it."""

from mmspec.factorizations.base import Descriptor as Descriptor
from mmspec.factorizations.text import TextSteps as TextSteps
from mmspec.factorizations.whisper import Segment as Segment
from mmspec.factorizations.whisper import WhisperSteps as WhisperSteps
