"""A run as one page of HTML that needs nothing beside itself: no script, no network, no font.

`recording_of` turns a transcription into plain data, `render_page` turns that into HTML.
"""

from mmspec.page.data import Failure, PageData, Recording, recording_of
from mmspec.page.pieces import TokenTexts
from mmspec.page.rendering import render_page
from mmspec.page.spectrogram import log_mel

__all__ = [
    "Failure",
    "PageData",
    "Recording",
    "TokenTexts",
    "log_mel",
    "recording_of",
    "render_page",
]
