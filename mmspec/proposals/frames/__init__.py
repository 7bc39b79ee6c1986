"""Drafters of frames of codes: what comes next in every codebook at once."""

from mmspec.proposals.frames.drafted import DraftedFrames as DraftedFrames
from mmspec.proposals.frames.heads import HeadsDrafter as HeadsDrafter
from mmspec.proposals.frames.lookup import FrameIndex as FrameIndex
from mmspec.proposals.frames.lookup import LookupDrafter as LookupDrafter
from mmspec.proposals.frames.model import FrameModelDrafter as FrameModelDrafter
from mmspec.proposals.frames.repeat import RepeatDrafter as RepeatDrafter
