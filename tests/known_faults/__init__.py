"""Faults that broke other speculative decoders, as tests. The letters are the catalogue's.

A committing a block, B sampling, C processors and scores, D state and positions, E pairing
vocabularies, G Whisper, J audio arrays, Z processors, criteria and masks shared or misplaced.
"""
