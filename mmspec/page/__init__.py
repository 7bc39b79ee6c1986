"""A run as one page of HTML that needs nothing beside itself: no script, no network, no font.

The `page` of each task room turns results into plain data, `render_page` turns that into HTML.
"""

from mmspec.page.data import Decoded, Failure, PageData
from mmspec.page.pictures import picture_of
from mmspec.page.pieces import TokenTexts
from mmspec.page.rendering import render_page
from mmspec.page.spectrogram import log_mel

__all__ = [
    "Decoded",
    "Failure",
    "PageData",
    "TokenTexts",
    "log_mel",
    "picture_of",
    "render_page",
]
