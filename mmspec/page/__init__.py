"""A run as one page of HTML that needs nothing beside itself: no script, no network, no font.

`recording_of`, `sight_of` and `utterance_of` turn a transcription, a description and a speech into
plain data, `render_page` turns that into HTML.
"""

from mmspec.page.data import Decoded, Failure, PageData
from mmspec.page.pictures import picture_of
from mmspec.page.pieces import TokenTexts
from mmspec.page.rendering import render_page
from mmspec.page.spectrogram import log_mel
from mmspec.tasks.asr.page import Recording, recording_of
from mmspec.tasks.tts.page import CodeTexts, Utterance, utterance_of
from mmspec.tasks.vlm.page import Sight, sight_of

__all__ = [
    "CodeTexts",
    "Decoded",
    "Failure",
    "PageData",
    "Recording",
    "Sight",
    "TokenTexts",
    "Utterance",
    "log_mel",
    "picture_of",
    "recording_of",
    "render_page",
    "sight_of",
    "utterance_of",
]
