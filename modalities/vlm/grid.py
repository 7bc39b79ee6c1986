"""Families that count an image's rows and columns as positions of their own (M-RoPE)."""

from mmspec.modalities.vlm.family import Family


class GridFamily(Family):
    """Native resolution: every image comes with its grid, and the positions follow from that."""

    towers = ("model.visual",)
