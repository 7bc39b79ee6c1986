"""Drafters of frames of codes: what comes next in every codebook at once."""
