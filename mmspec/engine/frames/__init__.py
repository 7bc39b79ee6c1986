"""What a session needs where one step decides a frame of codes; the loop is the same."""

from mmspec.engine.frames.choosing import Chain as Chain
from mmspec.engine.frames.choosing import FramePick as FramePick
from mmspec.engine.frames.choosing import FrameSampler as FrameSampler
from mmspec.engine.frames.layout import DelayedLayout as DelayedLayout
from mmspec.engine.frames.layout import DepthLayout as DepthLayout
from mmspec.engine.frames.layout import Layout as Layout
from mmspec.engine.frames.processing import FRAME_FORMS as FRAME_FORMS
from mmspec.engine.frames.processing import FrameProcessors as FrameProcessors
from mmspec.engine.frames.processing import over_codebooks as over_codebooks
from mmspec.engine.frames.processing import register_frame_form as register_frame_form
from mmspec.engine.frames.step_kind import Frames as Frames
from mmspec.engine.frames.stopping import FrameStops as FrameStops
