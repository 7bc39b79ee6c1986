"""Descriptors: what one autoregressive decision means, and what may be speculated about it."""

from mmspec.factorizations.base import Descriptor as Descriptor
from mmspec.factorizations.codebook_major import CodebookMajorStreams as CodebookMajorStreams
from mmspec.factorizations.codes import Cell as Cell
from mmspec.factorizations.codes import Codebook as Codebook
from mmspec.factorizations.codes import CodeSteps as CodeSteps
from mmspec.factorizations.codes import Order as Order
from mmspec.factorizations.codes import Step as Step
from mmspec.factorizations.delayed import DIA_DELAYS as DIA_DELAYS
from mmspec.factorizations.delayed import DelayedFrames as DelayedFrames
from mmspec.factorizations.depth import DepthFrames as DepthFrames
from mmspec.factorizations.first_stream import FirstStream as FirstStream
from mmspec.factorizations.staged import StagedCodes as StagedCodes
from mmspec.factorizations.text import TextSteps as TextSteps
from mmspec.factorizations.time_major import TimeMajorFrames as TimeMajorFrames
from mmspec.factorizations.whisper import Segment as Segment
from mmspec.factorizations.whisper import WhisperSteps as WhisperSteps
